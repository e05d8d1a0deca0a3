//! The upstream behind a target: a [single server](super::single_upstream) or a [pool of
//! replicas](super::pool).
//!
//! An upstream has the resources that calls compete for, apart from the provider's rate budgets:
//! slots, memory, and the number of calls that may await their first token. It also decides whether
//! calls are accepted at all. The scheduler decides which call is next, and asks the upstream
//! through [`Upstream`] whether the call fits and where it runs.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Assignment, Available, CallClass, Candidate, GrantId, Limiter, Pool, ReplicaAvailability, Requirements,
    Rule, Ticket, Tracked, UpstreamLoad,
};
use crate::adaptive::{AdaptiveView, Decision};
use crate::cooldown::{Attempt, Cooldown, CooldownState, Failure};
use crate::kv::{Kv, KvReservation, KvView, Prefix, Progress};
use crate::retry::RetryPath;
use crate::{budget::AvailableBudget, placement::ReplicaSet};
use tidegate_protocol::vllm::EngineMetrics;
use tidegate_tokens::Demand;

/// A change of an adaptive limit. If the upstream is a pool, the first part is the URL of the
/// replica, otherwise `None`.
pub type LimitChange = (Option<Arc<str>>, Decision);

/// What an attempt uses at its upstream from its admission until its slot is released.
#[derive(Debug)]
pub(super) struct UpstreamSlot {
    /// What the cool-down tracks about the attempt.
    pub(super) attempt: Attempt,
    /// What the adaptive limit tracks about the attempt, or `None` if the limit is fixed.
    pub(super) tracked: Option<Tracked>,
    /// The memory that the attempt uses, or `None` if the memory is not accounted for.
    pub(super) memory: Option<Box<MemoryUse>>,
    /// The replica that the attempt runs at. `None` for a single server, or if the call was forced
    /// while the pool had no replica.
    pub(super) assignment: Option<Box<Assignment>>,
}

impl UpstreamSlot {
    /// Returns `true` if an adaptive limit counts the attempt among those that await their first
    /// token.
    pub(super) fn awaits_first_token(&self) -> bool {
        self.awaiting().is_some()
    }

    /// Returns what the adaptive limit tracks about the attempt if the attempt awaits its first
    /// token.
    pub(super) fn awaiting(&self) -> Option<&Tracked> {
        self.tracked.as_ref().filter(|tracked| tracked.awaits)
    }
}

/// The memory that one attempt uses in an engine.
#[derive(Debug)]
pub(super) struct MemoryUse {
    pub(super) place: KvReservation,
    pub(super) progress: Progress,
}

impl MemoryUse {
    /// Takes memory for a call. The tokens of `prefix` are taken once for all calls that share
    /// them.
    pub(super) fn take(memory: &mut Kv, ticket: &Ticket, prefix: Prefix) -> Self {
        let progress = Progress::default();
        let forecast = ticket.forecast.clone();
        let place = memory.admit(&ticket.demand, forecast, prefix, progress.clone());
        Self { place, progress }
    }
}

/// A call that is about to get a slot.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub(super) id: GrantId,
    pub(super) call: &'a Candidate<'a>,
    /// The number of slots in use, including the one for this call.
    pub(super) in_flight: usize,
    /// The replicas whose memory is reserved for other calls.
    pub(super) reserved: ReplicaSet,
    /// Whether the call should go to a replica whose first-token capacity is not used up, because
    /// its tenant uses its share of it. Always `false` for a single server.
    pub(super) exceeds_share: bool,
}

/// The number of slots of an upstream, and the rule that keeps further calls from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The current number of slots.
    pub(super) slots: usize,
    /// The rule that keeps any further call from being sent, or `None` if another call may be sent.
    pub(super) shortage: Option<Rule>,
}

/// What calls are sent to, and what limits their number: a single server or a pool.
///
/// `in_flight` is the number of slots in use. Methods that take `&self` and concern slots or memory
/// use the values of the last [`Upstream::available`].
pub(super) trait Upstream: fmt::Debug + Send {
    /// Returns the current number of slots, and the rule that keeps a further call from being sent
    /// while `in_flight` slots are in use.
    fn limits(&self, in_flight: usize) -> Limits;

    /// Returns what the upstream can take, as far as tenants share it.
    fn load(&self) -> UpstreamLoad;

    /// Returns the number of calls like those in flight for which the upstream has memory. The
    /// maximum if it is not known.
    fn calls_in_memory(&self) -> usize;

    /// Sets the number of slots that are kept free for some tenants. An adaptive limit counts as
    /// full if only these are free.
    fn keep_free(&mut self, spare: usize);

    /// Sets a fixed number of slots, which replaces the configured or adaptive limit. For a pool,
    /// the number applies to all replicas together.
    fn set_limit(&mut self, limit: usize);

    /// Updates everything that changes with time alone: adaptive limits, and which replicas accept
    /// calls. Returns `false` if nothing has changed.
    fn tick(&mut self, now: Instant) -> bool;

    /// Returns when time alone may change the limits or the replicas, or `None` if it does not.
    fn next_wake(&self, now: Instant) -> Option<Instant>;

    /// Removes and returns the changes of the adaptive limits since the last call of this method.
    fn take_limit_changes(&mut self) -> Vec<LimitChange>;

    /// Returns the state of the adaptive limit. Returns `None` if the limit is fixed, and for a
    /// pool, which has a limit for each replica.
    fn adaptive(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView>;

    /// Returns the state of the memory, summed over all replicas, or `None` if its size is not
    /// known.
    fn memory(&self) -> Option<KvView>;

    /// Returns the limiter that counts the attempt with this assignment. Returns `None` if the
    /// replica of the attempt has left the pool. For a single server, the assignment is ignored.
    fn limiter_of(&mut self, assignment: Option<&Assignment>) -> Option<&mut Limiter>;

    /// Returns the number of calls of this process that await their first token at a single server
    /// with an adaptive limit. Zero otherwise.
    fn awaiting(&self) -> usize {
        0
    }

    /// Applies the metrics of the engine of a single server. Does nothing for a pool, whose
    /// replicas are observed with [`Scheduler::observe`](super::Scheduler::observe).
    fn on_engine_metrics(&mut self, _: Instant, _: &EngineMetrics) {}

    // What calls require, and what is available.

    /// Returns `true` if calls can differ in what they need of the upstream: memory or certain
    /// replicas.
    fn is_sized(&self) -> bool;

    /// Returns `true` if a call may fit although an earlier call of its tenant and lane does not,
    /// because they need different replicas.
    fn can_bypass(&self) -> bool {
        false
    }

    /// Returns the class of a call, that is, which replicas may take it.
    fn class(&mut self, _: &Ticket) -> CallClass {
        CallClass::default()
    }

    /// Returns the counter of the waiting calls of a class, which the scheduler updates. Returns
    /// `None` for a single server, or if the class is not known.
    fn waiting_mut(&mut self, _: CallClass) -> Option<&mut usize> {
        None
    }

    /// Returns the memory that a call needs at least, in tokens.
    fn memory_need(&self, demand: &Demand) -> u32;

    /// Returns the maximum input of one call in tokens if the call exceeds it, otherwise `None`.
    fn oversize(&self, call: &Candidate<'_>) -> Option<u64>;

    /// Measures slots and memory, and returns them together with `shared`, which is what the rate
    /// budgets have left.
    fn available(&mut self, in_flight: usize, shared: AvailableBudget) -> Available;

    /// Updates the free memory that is known of each replica, but not its slots. Does nothing for a
    /// single server.
    fn measure_memory(&mut self) {}

    /// Returns the slots and the memory that the replicas have for calls. The memory of the replica
    /// with the index `_held` counts as used, because it is reserved for one call. If `_in_flight`
    /// is `None`, each eligible replica is treated as if it had a free slot. Returns `None` for a
    /// single server.
    fn replicas(&self, _in_flight: Option<usize>, _held: Option<usize>) -> Option<Arc<ReplicaAvailability>> {
        None
    }

    /// Returns `true` if there is memory for a call that fits into `available`. Exact, in contrast
    /// to [`Available::fits`].
    fn has_memory(&self, call: &Candidate<'_>, available: &Available) -> bool;

    /// Returns the index of the replica whose memory is reserved for a call that lacks memory: the
    /// replica that lacks the least memory for the call.
    ///
    /// Returns `None` for a single server, if a replica has enough memory, or if the call is too
    /// large for each replica.
    fn replica_to_reserve(&self, _call: &Candidate<'_>) -> Option<usize> {
        None
    }

    /// Returns the largest memory need, in tokens, that the upstream can ever satisfy. `u32::MAX`
    /// if memory is not limited, and for a pool, where it depends on the replicas of a call.
    fn max_memory_need(&self) -> u32 {
        u32::MAX
    }

    /// Returns `true` if waiting calls may lack a slot, and the end of a call in flight would free
    /// one.
    fn may_lack_slots(&self, in_flight: usize) -> bool;

    /// Returns the replicas where a call with these requirements would use the next released slot,
    /// or the empty set for a single server.
    ///
    /// Returns `None` if a slot is free for the call already, or if no released slot would be of
    /// use to it.
    fn slots_for(&self, _: &Requirements, _: usize) -> Option<ReplicaSet> {
        Some(ReplicaSet::NONE)
    }

    /// Returns `true` if the attempt has no response head yet and uses a slot of one of these
    /// replicas. Always `true` for a single server.
    fn is_at(&self, _: GrantId, _: ReplicaSet) -> bool {
        true
    }

    // Whether calls are accepted.

    /// Returns the cool-down. For a pool, it applies only to attempts that were forced while there
    /// was no replica.
    fn cooldown(&self) -> &Cooldown;

    /// Returns the cool-down. See [`Upstream::cooldown`].
    fn cooldown_mut(&mut self) -> &mut Cooldown;

    /// Returns `Ok` if the cool-down permits an attempt now, otherwise when to ask again. For
    /// `has_failed`, see [`Ticket::has_failed`].
    fn ready(&mut self, now: Instant, has_failed: bool) -> Result<(), Instant> {
        if self.cooldown().is_open() {
            return Ok(());
        }
        let slots = self.limits(0).slots;
        self.cooldown_mut().ready(now, slots, has_failed)
    }

    /// Returns `true` if the next attempt is a probe of an upstream that was down, as of the last
    /// [`Upstream::ready`].
    fn is_probing(&self) -> bool {
        self.cooldown().is_probing()
    }

    /// Returns `true` if no cool-down, outage or recovery is in progress; for a pool, if a replica
    /// accepts calls.
    fn is_open(&self) -> bool {
        self.cooldown().is_open()
    }

    /// Returns `true` if a new call would have to wait until the upstream accepts calls again,
    /// because a cool-down or an outage is in progress.
    fn is_cooling(&self, now: Instant) -> bool {
        self.cooldown().until().is_some_and(|until| until > now)
    }

    /// Returns `true` if the upstream is *closed*: it is cooling down, is being probed, or has no
    /// eligible replica. Meanwhile, wait budgets run only with
    /// [`SchedulerSettings::has_fallback`](super::SchedulerSettings::has_fallback).
    fn is_closed(&self) -> bool {
        self.cooldown().is_closed()
    }

    /// Sets whether a slot is free for a probe. See [`Cooldown::is_closed`].
    fn set_has_slot(&mut self, now: Instant, has_slot: bool) {
        self.cooldown_mut().set_has_slot(now, has_slot);
    }

    /// Returns `true` if a [closed](Upstream::is_closed) upstream is down or has no replica that
    /// accepts calls. Returns `false` if a single server has asked callers to wait.
    fn is_unavailable(&self) -> bool {
        self.is_down()
    }

    /// Returns `true` if the upstream is a pool in which no replica accepts calls.
    fn has_no_replica(&self) -> bool {
        false
    }

    /// Returns the total time for which the upstream has been closed. See [`Upstream::is_closed`].
    fn closed(&self, now: Instant) -> Duration {
        self.cooldown().closed(now)
    }

    /// Returns since when the upstream has been closed, or `None` if it is not closed. See
    /// [`Upstream::is_closed`].
    fn closed_since(&self) -> Option<Instant>;

    /// Returns the time before which the cool-down admits no attempt, or `None` if no cool-down is
    /// in force.
    fn cooling_until(&self) -> Option<Instant> {
        self.cooldown().until()
    }

    /// Returns when the upstream is expected to accept calls again, or `None` if it accepts calls
    /// now or if the time is not known.
    fn closed_until(&self, _: Instant) -> Option<Instant> {
        self.cooldown().until()
    }

    /// Returns `true` if the upstream is closed because it failed, and `false` if it asked callers
    /// to wait. Has no meaning while the upstream accepts calls.
    fn is_down(&self) -> bool {
        self.cooldown().is_down()
    }

    /// Returns the state of the cool-down, for snapshots. A pool returns `Open` if a replica
    /// accepts calls, otherwise `Cooling`.
    fn state(&self, now: Instant) -> CooldownState {
        self.cooldown().state_at(now)
    }

    /// Continues a cool-down that began at another scheduler of the same upstream, until `until`.
    fn resume_cooldown(&mut self, now: Instant, until: Instant);

    /// Sets whether calls with several credentials or models use the upstream. See
    /// [`Scheduler::set_several_keys`](super::Scheduler::set_several_keys).
    fn set_several_keys(&mut self, _is_several: bool) {}

    /// Ends a cool-down that a `Retry-After` began.
    fn end_retry_after(&mut self, _: Instant) {}

    // Events of an attempt.

    /// Gives a call a slot and the memory that it needs, even if too little is free.
    fn admit(&mut self, now: Instant, admitted: Admitted<'_>) -> UpstreamSlot;

    /// Records that the response head of an attempt has arrived.
    fn on_response_head(&mut self, _: GrantId) {}

    /// Records the first token of an answer.
    fn on_first_token(&mut self, _: Instant, _: &mut UpstreamSlot) {}

    /// Records that an attempt was accepted. Returns the value of [`Upstream::is_open`] before.
    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot) -> bool;

    /// Records that an attempt failed, and returns what its call should do next.
    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> RetryPath;

    /// Releases a slot and its memory. Returns `true` if the replicas of the pool changed, because
    /// a draining replica has left with its last call.
    fn release(&mut self, now: Instant, id: GrantId, slot: &mut UpstreamSlot) -> bool;

    /// Returns the pool, or `None` if the upstream is a single server.
    fn as_pool(&self) -> Option<&Pool> {
        None
    }

    /// Returns the pool, or `None` if the upstream is a single server.
    fn as_pool_mut(&mut self) -> Option<&mut Pool> {
        None
    }
}

/// A failed attempt. For the fields, see [`Scheduler::on_failure`](super::Scheduler::on_failure).
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) call: u64,
    pub(super) failure: Failure,
    /// The time for which the upstream asked callers to wait, or `None` if it did not.
    pub(super) delay: Option<Duration>,
    pub(super) jitter: f64,
}
