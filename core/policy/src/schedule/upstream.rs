//! The upstream behind a target: a [single server](super::single) or a [pool of
//! replicas](super::pool).
//!
//! An upstream owns what calls compete for apart from the provider's budgets: slots, first tokens
//! and the engine's memory. It also decides whether calls are accepted at all. The scheduler
//! decides which call is next, and asks the upstream through [`Upstream`] whether the call can go
//! and where it runs.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::available::Available;
use super::limiter::{Limiter, Tracked};
use super::pool::{Assignment, Pool};
use super::requirements::{CallClass, Requirements, ReservedResources};
use super::rule::Rule;
use super::{GrantId, Ticket};
use crate::adaptive::{AdaptiveView, Decision};
use crate::budget::AvailableBudget;
use crate::cooldown::{Attempt, Cooldown, CooldownState, Failure, Hold};
use crate::kv::{Kv, KvReservation, KvView, Prefix, Progress};
use crate::placement::ReplicaSet;
use tidegate_tokens::Demand;

/// A change of an adaptive limit, with the URL of the replica if the upstream is a pool.
pub type LimitChange = (Option<Arc<str>>, Decision);

/// What an attempt holds at its upstream, from its admission until its slot is released.
#[derive(Debug)]
pub(super) struct UpstreamSlot {
    pub(super) attempt: Attempt,
    /// The attempt's sample of the adaptive limit, or `None` if the limit is fixed.
    pub(super) tracked: Option<Tracked>,
    /// The memory taken from a single engine. For a pool, `assignment` holds it.
    pub(super) memory: Option<Box<MemoryUse>>,
    /// Where the attempt runs, if the upstream is a pool.
    pub(super) assignment: Option<Box<Assignment>>,
}

impl UpstreamSlot {
    /// Returns `true` if a limit counts the attempt among those that await their first token.
    pub(super) fn awaits_first_token(&self) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| tracked.awaits)
    }

    /// Returns where to record the progress of the answer, or `None` if no memory is accounted for.
    pub(super) fn progress(&self) -> Option<&Progress> {
        let of_replica = self.assignment.as_ref().map(|assignment| assignment.progress());
        of_replica.or_else(|| self.memory.as_ref().map(|memory| &memory.progress))
    }
}

/// The memory that an attempt takes from an engine.
#[derive(Debug)]
pub(super) struct MemoryUse {
    pub(super) place: KvReservation,
    pub(super) progress: Progress,
}

impl MemoryUse {
    /// Takes memory for a call that shares `prefix` with others.
    pub(super) fn take(memory: &mut Kv, ticket: &Ticket, prefix: Prefix) -> Self {
        let progress = Progress::default();
        let forecast = ticket.forecast.clone();
        let place = memory.admit(&ticket.demand, forecast, prefix, progress.clone());
        Self { place, progress }
    }
}

/// An attempt that is about to be admitted.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub(super) id: GrantId,
    pub(super) ticket: &'a Ticket,
    pub(super) class: CallClass,
    /// Slots held, this attempt's included.
    pub(super) in_flight: usize,
    /// The replicas whose memory is reserved for other calls.
    pub(super) reserved: ReplicaSet,
}

/// The slots of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Slots in force.
    pub(super) slots: usize,
    /// What leaves no room for another call, if anything.
    pub(super) shortage: Option<Rule>,
}

/// What calls are sent to, and what limits their number.
///
/// `in_flight` is the number of slots held. Methods on capacity and memory that take `&self` answer
/// as of the last [`Upstream::available`].
pub(super) trait Upstream: fmt::Debug + Send {
    /// Returns the slots in force, and what leaves no room for another call.
    fn limits(&self, in_flight: usize) -> Limits;

    /// Sets a fixed number of slots, replacing the configured or adaptive limit. For a pool, the
    /// number limits all replicas together.
    fn set_limit(&mut self, limit: usize);

    /// Lets time pass: limits may change and replicas may return.
    fn tick(&mut self, now: Instant);

    /// Returns when time alone may make more room.
    fn next_wake(&self, now: Instant) -> Option<Instant>;

    /// Returns the changes of the adaptive limits since the last call.
    fn take_limit_changes(&mut self) -> Vec<LimitChange>;

    /// Returns the state of the adaptive limit. `None` if there is none, or one for each replica.
    fn adaptive(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView>;

    /// Returns the state of the memory, or `None` if its size is not known.
    fn memory(&self) -> Option<KvView>;

    /// Returns the limit that the attempt counts against, or `None` if its replica has left.
    fn limiter_of(&mut self, slot: &UpstreamSlot) -> Option<&mut Limiter>;

    // What calls require, and what is available.

    /// Returns `true` if calls can differ in what they lack.
    fn is_sized(&self) -> bool;

    /// Returns `true` if a call may fit although an earlier one in its line does not, because they
    /// compete for different replicas.
    fn can_bypass(&self) -> bool {
        false
    }

    /// Returns the class of a call: which replicas may take it.
    fn class(&mut self, _: &Ticket) -> CallClass {
        CallClass::default()
    }

    /// Records that a call of the class was queued.
    fn on_enqueue(&mut self, _: CallClass) {}

    /// Records that a call of the class has left the queue.
    fn on_dequeue(&mut self, _: CallClass) {}

    /// Returns the memory that a call needs, in tokens.
    fn memory_need(&self, demand: &Demand) -> u32;

    /// Returns the maximum input of one call, in tokens, if the call certainly exceeds it.
    fn oversize(&self, ticket: &Ticket, needs: &Requirements) -> Option<u64>;

    /// Measures slots and memory, and returns them together with the room in the shared budgets.
    fn available(&mut self, in_flight: usize, shared: AvailableBudget) -> Available;

    /// Measures the memory only, for a call that is forced.
    fn measure_memory(&mut self) {}

    /// Returns what is available to others if the memory of the replica `held` is reserved.
    fn without_reserved(&self, available: Available, _: Option<usize>, _: usize) -> Available {
        available
    }

    /// Returns what would be available if slots were free and the memory of the replica `held` is
    /// reserved.
    fn with_free_slots(&self, available: Available, _: Option<usize>) -> Available {
        available
    }

    /// Returns `true` if there is memory for a call that `available` lets go. Exact.
    fn has_memory(&self, needs: &Requirements, ticket: &Ticket, available: &Available) -> bool;

    /// Narrows a reservation to the memory of the replica where it will come free first.
    fn narrow(&self, held: ReservedResources, _: &Requirements, _: &Ticket) -> ReservedResources {
        held
    }

    /// Returns what is left for the calls behind an aged head that does not fit, or `None` if
    /// nothing is.
    fn left_behind(&self, _: &Requirements, _: &Ticket, _: &Available) -> Option<Available> {
        None
    }

    /// Returns `true` if the end of a call in flight may give a waiting call the slot that it
    /// lacks.
    fn may_lack_slots(&self, in_flight: usize) -> bool;

    /// Returns the replicas where the next released slot would go to the call; the empty set for a
    /// single server.
    ///
    /// Returns `None` if the call has a slot already or cannot use one.
    fn slots_for(&self, _: &Requirements, _: usize) -> Option<ReplicaSet> {
        Some(ReplicaSet::NONE)
    }

    /// Returns `true` if the attempt holds a slot at one of the replicas from
    /// [`Upstream::slots_for`].
    fn is_at(&self, _: GrantId, _: ReplicaSet) -> bool {
        true
    }

    // Whether calls are accepted.

    /// Returns the cool-down. For a pool, that of attempts without a replica.
    fn cooldown(&self) -> &Cooldown;

    /// Returns the cool-down.
    fn cooldown_mut(&mut self) -> &mut Cooldown;

    /// Returns `Ok` if an attempt may go now, otherwise when to ask again. For `has_failed`, see
    /// [`Ticket::has_failed`].
    fn ready(&mut self, now: Instant, has_failed: bool) -> Result<(), Instant> {
        if self.cooldown().is_open() {
            return Ok(());
        }
        let slots = self.limits(0).slots;
        self.cooldown_mut().ready(now, slots, has_failed)
    }

    /// Returns `true` if the next attempt is a probe of an upstream that is down. As of the last
    /// [`Upstream::ready`].
    fn is_probing(&self) -> bool {
        self.cooldown().is_probing()
    }

    /// Returns `true` if no cool-down, outage or recovery is in progress.
    fn is_open(&self) -> bool {
        self.cooldown().is_open()
    }

    /// Returns `true` if a new call has to wait for the end of a cool-down or an outage.
    fn is_cooling(&self, now: Instant) -> bool {
        self.cooldown().until().is_some_and(|until| until > now)
    }

    /// Returns `true` if nothing may be sent. Wait budgets stop meanwhile.
    fn is_closed(&self) -> bool {
        self.cooldown().is_closed()
    }

    /// Returns `true` if no replica accepts calls. A single server is closed by its cool-down only.
    fn has_no_replica(&self) -> bool {
        false
    }

    /// Returns for how long the upstream has been closed, in total.
    fn closed(&self, now: Instant) -> Duration {
        self.cooldown().closed(now)
    }

    /// Returns since when the upstream has been closed.
    fn closed_since(&self) -> Option<Instant>;

    /// Returns until when the upstream certainly stays closed.
    fn cooling_until(&self) -> Option<Instant> {
        self.cooldown().until()
    }

    /// Returns until when the upstream is expected to stay closed.
    fn closed_until(&self, _: Instant) -> Option<Instant> {
        self.cooldown().until()
    }

    /// Returns `true` if the upstream is closed because it is down, not because it asked callers to
    /// wait.
    fn is_down(&self) -> bool {
        self.cooldown().is_down()
    }

    /// Returns the state for snapshots.
    fn state(&self, now: Instant) -> CooldownState {
        self.cooldown().state_at(now)
    }

    /// Continues a cool-down that began elsewhere.
    fn resume_cooldown(&mut self, now: Instant, until: Instant);

    // Events of an attempt.

    /// Gives an attempt a slot and the memory that it needs.
    fn admit(&mut self, now: Instant, admitted: Admitted<'_>) -> UpstreamSlot;

    /// Handles the head of an answer.
    fn on_answer(&mut self, _: GrantId) {}

    /// Handles the first token of an answer.
    fn on_first_token(&mut self, _: Instant, _: &mut UpstreamSlot) {}

    /// Handles an attempt that was accepted.
    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot);

    /// Handles an attempt that failed.
    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> Hold;

    /// Releases the slot and its memory. Returns `true` if the set of replicas changed.
    fn release(&mut self, now: Instant, id: GrantId, slot: UpstreamSlot) -> bool;

    /// Returns the pool if the upstream is one.
    fn as_pool(&self) -> Option<&Pool> {
        None
    }

    /// Returns the pool if the upstream is one.
    fn as_pool_mut(&mut self) -> Option<&mut Pool> {
        None
    }
}

/// A failed attempt. For the fields, see [`Scheduler::on_failure`](super::Scheduler::on_failure).
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) call: u64,
    pub(super) failure: Failure,
    /// The delay that the upstream asked for.
    pub(super) delay: Option<Duration>,
    pub(super) jitter: f64,
}
