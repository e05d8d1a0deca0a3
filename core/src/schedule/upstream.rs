//! The upstream behind a target: the [single server](super::single) or the [pool of replicas](super::pool).
//!
//! An upstream owns what calls compete for beyond the provider's budgets: slots, first tokens and the
//! engine's memory, and whether it accepts calls at all. The scheduler decides who goes next, and
//! asks the upstream through [`Upstream`] whether a call can go and where it runs.

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
use crate::budget::Room;
use crate::cooldown::{Attempt, Failure, Hold, State};
use crate::estimate::Demand;
use crate::kv::{self, Kv, Place, Prefix, Progress};
use crate::placement::ReplicaSet;

/// A change of an adaptive limit, with the URL of the replica if the upstream is a pool.
pub type LimitChange = (Option<Arc<str>>, Decision);

/// What an attempt holds at its upstream, from its admission until its slot is released.
#[derive(Debug)]
pub(super) struct UpstreamSlot {
    pub(super) attempt: Attempt,
    /// How the adaptive limit knows the attempt. `None` if the limit is fixed.
    pub(super) tracked: Option<Tracked>,
    /// The memory that it takes of a single engine. Replicas keep theirs in `assignment`.
    pub(super) memory: Option<Box<MemoryUse>>,
    /// Where the attempt runs, if the upstream is a pool.
    pub(super) assignment: Option<Box<Assignment>>,
}

impl UpstreamSlot {
    /// Returns `true` if a limit counts the attempt among those that await their first token.
    pub(super) fn awaits_first_token(&self) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| tracked.awaits)
    }

    /// Returns where to write how far the answer has come, or `None` if no memory is accounted for.
    pub(super) fn progress(&self) -> Option<&Progress> {
        let of_replica = self.assignment.as_ref().map(|assignment| assignment.progress());
        of_replica.or_else(|| self.memory.as_ref().map(|memory| &memory.progress))
    }
}

/// The memory that an attempt takes of an engine.
#[derive(Debug)]
pub(super) struct MemoryUse {
    pub(super) place: Place,
    pub(super) progress: Progress,
}

impl MemoryUse {
    /// Takes memory for the call, which shares `prefix` with others.
    pub(super) fn take(memory: &mut Kv, ticket: &Ticket, prefix: Prefix) -> Self {
        let progress = Progress::default();
        let forecast = ticket.forecast.clone();
        let place = memory.admit_expecting(&ticket.demand, forecast, prefix, progress.clone());
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

/// The slots of an upstream, as they stand now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Slots in force.
    pub(super) slots: usize,
    /// What leaves no room for another call.
    pub(super) shortage: Option<Rule>,
}

/// What calls are sent to, and what limits how many of them it takes.
///
/// `in_flight` is the number of slots that are held. Methods without `&mut self` on capacity and
/// memory answer as of the last [`Upstream::available`].
pub(super) trait Upstream: fmt::Debug + Send {
    /// Returns the slots in force, and what leaves no room beside the calls in flight.
    fn limits(&self, in_flight: usize) -> Limits;

    /// Sets a fixed number of slots, in place of the configured or adaptive one. At a pool it
    /// limits all replicas together.
    fn set_limit(&mut self, limit: usize);

    /// Lets time pass: limits may move, replicas may come back.
    fn tick(&mut self, now: Instant);

    /// Returns when time alone may make more room.
    fn next_wake(&self, now: Instant) -> Option<Instant>;

    /// Returns the changes of the adaptive limits since the last call.
    fn take_limit_changes(&mut self) -> Vec<LimitChange>;

    /// Returns the state of the one adaptive limit, or `None` if there is none or one for each replica.
    fn adaptive(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView>;

    /// Returns the state of the memory, or `None` if its size is not known.
    fn memory(&self) -> Option<kv::View>;

    /// Returns the limit that the attempt counts against, or `None` if its replica has left.
    fn limiter_of(&mut self, slot: &UpstreamSlot) -> Option<&mut Limiter>;

    // What calls need, and what there is of it.

    /// Returns `true` if calls can differ in what they lack of this upstream.
    fn is_sized(&self) -> bool;

    /// Returns `true` if a call may fit although one ahead of it in its line does not, because the
    /// two compete for different replicas.
    fn can_bypass(&self) -> bool;

    /// Returns which replicas may take the call.
    fn class(&mut self, ticket: &Ticket) -> CallClass;

    /// A call of that kind was queued.
    fn on_enqueue(&mut self, class: CallClass);

    /// A call of that kind has left the queue.
    fn on_dequeue(&mut self, class: CallClass);

    /// Returns the memory that a call needs, in tokens.
    fn memory_need(&self, demand: &Demand) -> u32;

    /// Returns the most tokens that the memory can ever hold of one call, if that call has more.
    fn oversize(&self, ticket: &Ticket, requirements: &Requirements) -> Option<u64>;

    /// Measures the slots and the memory, and returns them beside the room in the shared budgets.
    fn available(&mut self, in_flight: usize, shared: Room) -> Available;

    /// Measures the memory alone, for a call that is admitted whatever there is. A single server
    /// needs no measure for that.
    fn measure_memory(&mut self) {}

    /// Returns what is available if the memory of that replica is held for one call.
    fn without_reserved(&self, available: Available, held: Option<usize>, in_flight: usize) -> Available;

    /// Returns what would be available if slots were free, and the memory of that replica is held.
    fn with_free_slots(&self, available: Available, held: Option<usize>) -> Available;

    /// Returns `true` if there is memory for the call, where `rooms` let it go. Exact.
    fn has_memory(&self, requirements: &Requirements, ticket: &Ticket, available: &Available) -> bool;

    /// Narrows what is held for a call to the memory that is to come free for it.
    fn narrow(
        &self,
        held: ReservedResources,
        requirements: &Requirements,
        ticket: &Ticket,
    ) -> ReservedResources;

    /// Returns what is left for the calls behind an aged head that does not fit, or `None` if
    /// nothing is.
    fn left_behind(
        &self,
        requirements: &Requirements,
        ticket: &Ticket,
        available: &Available,
    ) -> Option<Available>;

    /// Returns `true` if a waiting call may lack a slot that an end of another call would give it.
    fn may_lack_slots(&self, in_flight: usize) -> bool;

    /// Returns the replicas where the next slot that comes free would go to the call; for a single
    /// server, the empty set. `None` if the call has a slot already, or no use for one.
    fn slots_for(&self, requirements: &Requirements, in_flight: usize) -> Option<ReplicaSet>;

    /// Returns `true` if a slot that the attempt gives back is one of those of [`Upstream::slots_for`].
    fn is_at(&self, id: GrantId, places: ReplicaSet) -> bool;

    // Whether it accepts calls.

    /// Returns `Ok` if an attempt may go now, or when to ask again. `has_failed`: see [`Ticket::has_failed`].
    fn ready(&mut self, now: Instant, has_failed: bool) -> Result<(), Instant>;

    /// Returns `true` if what is admitted now probes an upstream that is down. As of the last
    /// [`Upstream::ready`].
    fn is_probing(&self) -> bool;

    /// Returns `true` if no restriction of a cool-down or an outage is on.
    fn is_open(&self) -> bool;

    /// Returns `true` if a call that comes now has to wait for the end of a cool-down or an outage.
    fn is_cooling(&self, now: Instant) -> bool;

    /// Returns `true` if nothing may be sent. Wait budgets stand still meanwhile.
    fn is_closed(&self) -> bool;

    /// Returns `true` if no replica accepts calls. A single server is closed by its cool-down only.
    fn has_no_replica(&self) -> bool;

    /// Returns for how long the upstream has been closed, in all.
    fn closed(&self, now: Instant) -> Duration;

    /// Returns since when the upstream has been closed.
    fn closed_since(&self) -> Option<Instant>;

    /// Returns until when the upstream stays closed, as far as that is certain.
    fn cooling_until(&self) -> Option<Instant>;

    /// Returns until when the upstream is expected to stay closed.
    fn closed_until(&self, now: Instant) -> Option<Instant>;

    /// Returns `true` if the upstream is closed because it is down, and not at its own request.
    fn is_down(&self) -> bool;

    /// Returns the state for views.
    fn state(&self, now: Instant) -> State;

    /// Continues a cool-down that began elsewhere.
    fn resume_cooldown(&mut self, now: Instant, until: Instant);

    // The life of an attempt.

    /// Gives the attempt a slot, and the memory that it needs.
    fn admit(&mut self, now: Instant, admitted: Admitted<'_>) -> UpstreamSlot;

    /// The head of the answer came.
    fn on_answer(&mut self, id: GrantId);

    /// The first token came.
    fn on_first_token(&mut self, now: Instant, slot: &mut UpstreamSlot);

    /// The upstream accepted the attempt.
    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot);

    /// The upstream failed the attempt. `call` tells calls apart; `jitter` is uniform in [0, 1).
    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> Hold;

    /// The attempt ended, and nothing was concluded from it.
    fn on_inconclusive(&mut self, attempt: Attempt);

    /// Takes back the slot and its memory. Returns `true` if the replicas have changed by it.
    fn release(&mut self, now: Instant, id: GrantId, slot: UpstreamSlot) -> bool;

    /// Returns the pool, if this is one.
    fn as_pool(&self) -> Option<&Pool> {
        None
    }

    /// Returns the pool, if this is one.
    fn as_pool_mut(&mut self) -> Option<&mut Pool> {
        None
    }
}

/// A failed attempt, see [`Scheduler::failed`](super::Scheduler::failed).
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) call: u64,
    pub(super) failure: Failure,
    /// What the upstream asked to wait.
    pub(super) delay: Option<Duration>,
    pub(super) jitter: f64,
}
