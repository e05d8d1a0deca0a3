//! A pool of replicas as the upstream. Each replica has slots and memory of its own.
//!
//! [`Placement`] decides which replicas are eligible, and which of those with a slot and memory
//! takes a call. The pool tracks the slots and the memory of each replica. Both run under the lock
//! of the scheduler.
//!
//! # Invariants
//!
//! - A call is assigned to a replica that may take it and has a slot and memory for it, unless the
//!   call was forced.
//! - The slot and the memory that a call uses at its replica are released once, when the call ends,
//!   even if the replica is draining.
//! - Each event of a call is reported to [`Placement`] once.

mod assignment;
mod call_classes;
mod failures;
mod members;
mod partners;
mod pool_upstream;
mod replica_slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::{CallClass, GrantId, Scheduler, SchedulerSettings, Span, Ticket, Upstream};
use crate::placement::{Placement, ReplicaSet, Wants};
use crate::{adaptive, cooldown::Cooldown, kv::Forecast};
use call_classes::CallClasses;
use replica_slots::ReplicaSlots;

pub(super) use assignment::Assignment;

/// A pool of replicas as the upstream of a scheduler. See [the module](self).
#[derive(Debug)]
pub(super) struct Pool {
    placement: Placement,
    /// The replicas by index. `None`: no replica has this index now.
    replicas: Vec<Option<ReplicaSlots>>,
    /// The replicas that accept calls.
    eligible: ReplicaSet,
    /// The replicas that refuse connections.
    refusing: ReplicaSet,
    /// Whether `refusing` has changed since waiting calls were last classified, so that other
    /// replicas may take them.
    has_other_refusing: bool,
    /// The classes into which calls are divided by the replicas that may take them.
    classes: CallClasses,
    /// The maximum number of calls in flight at all replicas together.
    cap: usize,
    each: ReplicaSettings,
    /// The calls in flight without a response head, with the index of their replica.
    unanswered: BTreeMap<GrantId, usize>,
    /// The calls without a response head whose replica went down, until
    /// [`Scheduler::next_stranded`] returns them.
    stranded: Vec<GrantId>,
    /// The total time for which no replica was eligible, without the time since `closed_since`.
    closed: Duration,
    /// Since when no replica has been eligible, or `None` if one is.
    closed_since: Option<Instant>,
    /// The latest span of time in which no replica was eligible, from which waits are explained. In
    /// contrast to `closed_since`, the span does not start anew if a replica becomes eligible and
    /// ineligible at the same moment.
    seen_closed: Span,
    /// The cool-down of attempts that were forced while there was no replica.
    cooldown: Cooldown,
}

/// The settings that apply to each replica.
#[derive(Debug)]
struct ReplicaSettings {
    /// The maximum number of calls in flight at one replica.
    slots: usize,
    /// The settings of each replica's adaptive limit, or `None` if the limit is fixed.
    adaptive: Option<adaptive::LimitSettings>,
    /// The size of each replica's memory in tokens, or `None` if only replicas configure or report
    /// it.
    kv_tokens: Option<u64>,
    /// The share of the memory that is kept free (0 to 1).
    kv_headroom: f64,
}

impl Pool {
    /// Creates a pool without replicas. Returns `None` if the settings are those of a single
    /// server.
    pub(super) fn new(settings: &SchedulerSettings, now: Instant) -> Option<Self> {
        let config = settings.pool.as_ref()?;
        Some(Self {
            placement: Placement::new(config, fastrand::u64(..)),
            replicas: Vec::new(),
            eligible: ReplicaSet::NONE,
            refusing: ReplicaSet::NONE,
            has_other_refusing: false,
            classes: CallClasses::default(),
            cap: settings.limit,
            each: ReplicaSettings {
                slots: config.cap,
                adaptive: settings.adaptive.clone(),
                kv_tokens: settings.kv_tokens,
                kv_headroom: settings.kv_headroom,
            },
            unanswered: BTreeMap::new(),
            stranded: Vec::new(),
            closed: Duration::ZERO,
            closed_since: Some(now),
            seen_closed: Span::default(),
            cooldown: Cooldown::default(),
        })
    }

    /// Updates the sets of eligible and of refusing replicas. Also updates the usable share of the
    /// slots of each eligible replica, and the total time in which no replica was eligible.
    fn refresh(&mut self, now: Instant) {
        let eligible = self.placement.eligible(now);
        let refusing = self.placement.refusing();
        self.has_other_refusing |= std::mem::replace(&mut self.refusing, refusing) != refusing;
        self.eligible = ReplicaSet::NONE;
        for at in eligible.iter() {
            if let Some(replica) = self.replicas.get_mut(at).and_then(Option::as_mut) {
                replica.share = self.placement.share(now, at);
                self.eligible.insert(at);
            }
        }
        self.seen_closed.set(now, self.is_empty());
        if self.is_empty() {
            self.closed_since.get_or_insert(now);
        } else if let Some(since) = self.closed_since.take() {
            self.closed += now.saturating_duration_since(since);
        }
    }

    /// Returns `true` if no replica is eligible.
    fn is_empty(&self) -> bool {
        self.eligible.is_empty()
    }

    /// Returns `true` if no replica accepts calls, and none is full.
    pub(super) fn is_in_outage(&self) -> bool {
        self.is_empty() && self.is_down()
    }

    /// Returns the replicas that may take a call with these `wants` and an input of at least
    /// `min_input` tokens, whether they are eligible or not, and whether the call was tried there
    /// or not.
    fn serving(&self, wants: Option<&Wants>, min_input: u64) -> ReplicaSet {
        match wants.filter(|wants| !wants.avoid.is_empty()) {
            Some(Wants { model, .. }) => {
                let wants = Wants { model: model.clone(), ..Wants::default() };
                self.placement.serving(Some(&wants), min_input)
            }
            None => self.placement.serving(wants, min_input),
        }
    }

    /// Returns the replicas where the call was tried, as listed in [`Wants::avoid`]. Empty if
    /// `wants` is `None`.
    fn tried(&self, wants: Option<&Wants>) -> ReplicaSet {
        let avoid = wants.map(|wants| wants.avoid.as_slice()).unwrap_or_default();
        avoid.iter().filter_map(|id| self.placement.index_of(*id)).collect()
    }

    /// Returns the context lengths of all models of all replicas in ascending order, without
    /// duplicates. Inputs between two consecutive lengths may go to the same replicas.
    fn lengths(&self) -> Vec<u64> {
        let models = self.replicas.iter().flatten().filter_map(|replica| replica.models.as_ref()).flatten();
        let mut lengths: Vec<_> = models.filter_map(|model| model.max_tokens).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Returns the replicas that may take calls of a class, or the empty set if the class is not
    /// known.
    fn replicas_of(&self, class: CallClass) -> ReplicaSet {
        class.number().and_then(|number| self.classes.get(number)).unwrap_or_default()
    }

    /// Returns the eligible replicas that may take calls of a class.
    fn eligible_of(&self, class: CallClass) -> ReplicaSet {
        self.replicas_of(class).and(self.eligible)
    }

    /// Returns the current forecast of the length of a call's answer. Returns an empty forecast if
    /// the size of no replica's memory is known, because then it is not used.
    fn forecast(&self, ticket: &Ticket) -> Forecast {
        let sized = self.replicas.iter().flatten().any(|replica| replica.most().is_some());
        if sized { ticket.forecast.clone().resolve() } else { Forecast::default() }
    }

    /// Returns the eligible replicas with a free slot. Returns the empty set if `in_flight` has
    /// reached the maximum of the pool.
    fn with_free_slot(&self, in_flight: usize) -> ReplicaSet {
        if in_flight >= self.cap {
            return ReplicaSet::NONE;
        }
        self.eligible_replicas()
            .filter(|(_, replica)| replica.shortage().is_none())
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns the eligible replicas with their indices.
    fn eligible_replicas(&self) -> impl Iterator<Item = (usize, &ReplicaSlots)> {
        self.eligible.iter().filter_map(|at| Some((at, self.replica(at)?)))
    }

    fn replica(&self, at: usize) -> Option<&ReplicaSlots> {
        self.replicas.get(at)?.as_ref()
    }

    fn replica_mut(&mut self, at: usize) -> Option<&mut ReplicaSlots> {
        self.replicas.get_mut(at)?.as_mut()
    }

    /// Returns the replica of an assignment, or `None` if it has left the pool.
    fn replica_of(&mut self, assignment: &Assignment) -> Option<&mut ReplicaSlots> {
        let replica = self.replica_mut(assignment.placed_call.at)?;
        (replica.placed.id == assignment.placed_call.placed.id).then_some(replica)
    }
}

impl<W> Scheduler<W> {
    /// Recomputes which replicas may take each waiting call if other replicas refuse connections
    /// than before.
    pub(super) fn reclassify_if_refusing_changed(&mut self, now: Instant) {
        if self.capacity.upstream.as_pool().is_some_and(|pool| pool.has_other_refusing) {
            self.reclassify(now);
        }
    }

    /// Recomputes which replicas may take each waiting call. Does nothing for a single server.
    pub(super) fn reclassify(&mut self, now: Instant) {
        let Self { queue, capacity, .. } = self;
        capacity.with_pool(|pool| {
            pool.has_other_refusing = false;
            let lengths = pool.lengths();
            // There are few models and lengths, however many calls wait. A class found here keeps
            // its number, because the call for which it was found waits.
            let mut known = HashMap::new();
            queue.update_requirements(|ticket, needs| {
                let model = ticket.wants.as_ref().and_then(|wants| wants.model.clone());
                let input = ticket.demand.min_input();
                let length = lengths.partition_point(|longest| *longest <= input);
                let class = *known.entry((model, length)).or_insert_with(|| pool.class(ticket));
                if class == needs.class {
                    return false;
                }
                // The new class first: the number of a class without waiting calls may be
                // reassigned.
                pool.classes.waiting_mut(class).into_iter().for_each(|waiting| *waiting += 1);
                let old = std::mem::replace(&mut needs.class, class);
                pool.classes.waiting_mut(old).into_iter().for_each(|waiting| *waiting -= 1);
                true
            });
        });
        self.capacity.refresh_and_record(now);
        self.watch_gap(now);
    }
}
