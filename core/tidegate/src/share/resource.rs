//! A limit or a pool of this process that other processes share: a *resource* of its store.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::admission::{Admission, BudgetSet};
use crate::budget::SharedSet;
use crate::schedule::LeaseKind;
use tidegate_share::rates::{Advance, Draw};
use tidegate_share::{LeaseUpdate, LimitEvents, Placements, Report};

/// Time for which events of calls are collected before other processes are told of them.
pub(super) const EVENTS_DELAY: Duration = Duration::from_millis(20);
/// The maximum number of messages with such events of one limit or pool that are sent together.
const MAX_MESSAGES: usize = 64;

/// A limit or a pool of this process that other processes share.
#[derive(Clone, Debug)]
pub(crate) enum SharedResource {
    /// The calls in flight of a target or tool, or those that await their first token.
    Calls(LeaseKind, Weak<Admission>),
    /// The requests and tokens per time of a target, of a tool, or of several targets.
    Rates(Weak<BudgetSet>, SharedSet),
    /// The replicas of a pool: where calls are sent, and how far they are. Nothing of it is leased.
    Replicas(Weak<Admission>),
}

/// What a resource tells its store when it joins.
#[derive(Debug)]
pub(crate) enum JoinMessage {
    Calls(Report),
    Rates(Draw),
    Placements(Placements),
}

/// What happened to calls, which other processes must be told.
#[derive(Clone, Debug)]
pub(crate) enum CallEvents {
    /// The calls are at a target with an adaptive limit.
    LimitEvents(LimitEvents),
    /// The calls are at a pool.
    Placements(Placements),
}

impl SharedResource {
    /// Returns `true` if both are the same limit or pool of this process.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Calls(kind, one), Self::Calls(of, other)) => kind == of && one.ptr_eq(other),
            (Self::Rates(one, set), Self::Rates(other, of)) => set == of && one.ptr_eq(other),
            (Self::Replicas(one), Self::Replicas(other)) => one.ptr_eq(other),
            _ => false,
        }
    }

    /// Joins a broker. Returns what it must be told, or `None` if the limit was dropped.
    pub(super) fn join(&self) -> Option<JoinMessage> {
        match self {
            Self::Calls(kind, admission) => admission.upgrade()?.join_share(*kind).map(JoinMessage::Calls),
            Self::Rates(budgets, set) => budgets.upgrade()?.join_share(*set).map(JoinMessage::Rates),
            Self::Replicas(admission) => admission.upgrade()?.join_partners().map(JoinMessage::Placements),
        }
    }

    /// Applies an update of a lease by the broker. Has no effect on rates and pools.
    pub(super) fn on_lease_update(&self, update: LeaseUpdate) {
        if let Self::Calls(kind, admission) = self {
            admission.upgrade().iter().for_each(|it| it.on_lease_update(*kind, update));
        }
    }

    /// Adds what the broker has advanced before the time `age`.
    pub(super) fn on_advance(&self, advance: &Advance, age: Duration) {
        if let Self::Rates(budgets, set) = self {
            budgets.upgrade().iter().for_each(|it| it.on_advance(*set, advance, age));
        }
    }

    /// Sets the number of processes that share rates.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "a local broker tells it with advances"))]
    pub(super) fn set_processes(&self, processes: usize) {
        if let Self::Rates(budgets, set) = self {
            budgets.upgrade().iter().for_each(|it| it.set_processes(*set, processes));
        }
    }

    /// Returns what other processes must be told of the calls, and whether there may be more.
    pub(super) fn take_events(&self) -> (Vec<CallEvents>, bool) {
        let events: Vec<_> = std::iter::from_fn(|| self.take_message()).take(MAX_MESSAGES).collect();
        let may_have_more = events.len() == MAX_MESSAGES;
        (events, may_have_more)
    }

    /// Returns the next message with events of calls, or `None` if there is none.
    fn take_message(&self) -> Option<CallEvents> {
        if let Self::Replicas(admission) = self {
            return admission.upgrade()?.take_placements().map(CallEvents::Placements);
        }
        self.slots()?.take_limit_events().map(CallEvents::LimitEvents)
    }

    /// Returns `true` if calls are in flight, or, at a pool, were sent since the last time.
    pub(super) fn take_activity(&self) -> bool {
        match self {
            Self::Calls(LeaseKind::Slots, admission) | Self::Replicas(admission) => {
                admission.upgrade().is_some_and(|admission| admission.take_activity())
            }
            Self::Calls(LeaseKind::FirstTokens, _) | Self::Rates(..) => false,
        }
    }

    /// Applies what happened to calls at a pool of another process. See
    /// [`Admission::on_placements`].
    pub(super) fn on_placements(&self, process: Option<u64>, others: usize, placements: &Placements) {
        if let Self::Replicas(admission) = self {
            admission.upgrade().iter().for_each(|it| it.on_placements(process, others, placements));
        }
    }

    /// Applies what happened to calls of another process at an adaptive limit.
    pub(super) fn on_limit_events(&self, process: u64, limit_events: &LimitEvents) {
        if let Some(admission) = self.slots() {
            admission.on_limit_events(process, limit_events);
        }
    }

    /// Starts a cool-down until `until` that another process has announced. Applies to slots only.
    pub(super) fn on_cool_down(&self, until: Instant) {
        if let Some(admission) = self.slots() {
            admission.resume_cooldown(until);
        }
    }

    /// Renews what is leased, because the broker has answered a heartbeat that was sent at
    /// `sent_at`.
    pub(super) fn on_alive(&self, sent_at: Instant) {
        match self {
            Self::Calls(kind, admission) => {
                admission.upgrade().iter().for_each(|it| it.on_share_alive(*kind, sent_at));
            }
            Self::Rates(budgets, set) => {
                budgets.upgrade().iter().for_each(|it| it.on_share_alive(*set, sent_at))
            }
            Self::Replicas(_) => {}
        }
    }

    /// Returns `true` if this process has charged something to rates within their windows.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "the members of a local broker send heartbeats")
    )]
    pub(super) fn has_charges(&self) -> bool {
        let Self::Rates(budgets, set) = self else { return false };
        budgets.upgrade().is_some_and(|it| it.has_shared_charges(*set))
    }

    /// Returns what is idle to the broker, and reports what has changed since the last heartbeat.
    pub(super) fn on_heartbeat(&self) {
        match self {
            Self::Calls(kind, admission) => {
                admission.upgrade().iter().for_each(|it| it.on_share_heartbeat(*kind));
            }
            Self::Rates(budgets, set) => budgets.upgrade().iter().for_each(|it| it.on_share_heartbeat(*set)),
            Self::Replicas(_) => {}
        }
    }

    /// Records that the broker was lost.
    pub(super) fn on_lost(&self) {
        match self {
            Self::Calls(kind, admission) => {
                admission.upgrade().iter().for_each(|it| it.on_share_lost(*kind));
            }
            Self::Rates(budgets, set) => budgets.upgrade().iter().for_each(|it| it.on_share_lost(*set)),
            Self::Replicas(admission) => admission.upgrade().iter().for_each(|it| it.leave_partners()),
        }
    }

    /// Lets this process use the whole limit, because there can be no broker.
    pub(super) fn on_alone(&self) {
        match self {
            Self::Calls(kind, admission) => {
                admission.upgrade().iter().for_each(|it| it.on_share_alone(*kind));
            }
            Self::Rates(budgets, set) => budgets.upgrade().iter().for_each(|it| it.on_share_alone(*set)),
            Self::Replicas(_) => {}
        }
    }

    /// Returns the admission of a limit of slots, or `None` for other resources and after the gate
    /// was dropped.
    fn slots(&self) -> Option<Arc<Admission>> {
        if let Self::Calls(LeaseKind::Slots, admission) = self { admission.upgrade() } else { None }
    }
}
