//! The operations of [`Admission`] that concern the whole target instead of one call: snapshots,
//! the limit, the replicas, and draining.

use crate::config::ReplicaConfig;
use std::sync::Arc;
use std::time::Instant;

use super::Admission;
use crate::clock::now;
use crate::placement::{EngineMetrics, Observation, Placed, PollRequests, ReplicaId, ReplicaView};
use crate::schedule::{Scheduler, SchedulerView, Ticket, WaitExplanation, WaiterId};

impl Admission {
    /// Returns `true` if the target is in a cool-down, during which new calls have to wait.
    pub fn is_cooling(&self) -> bool {
        self.state.lock().scheduler.is_cooling(now())
    }

    /// Continues a cool-down that began elsewhere, until `until`: in another process, at the target
    /// that this target replaces, or as the cool-down of the only credential and model still used.
    pub(crate) fn resume_cooldown(self: &Arc<Self>, until: Instant) {
        self.update(|scheduler, now| scheduler.resume_cooldown(now, until));
    }

    /// Returns until when the upstream asked callers to wait. `None` if it did not, or if it is
    /// down.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.state.lock().scheduler.waits_until()
    }

    /// See [`Scheduler::set_several_keys`].
    pub(crate) fn set_several_keys(self: &Arc<Self>, is_several: bool) {
        self.update(|scheduler, now| scheduler.set_several_keys(now, is_several));
    }

    /// Ends the cool-down that a `Retry-After` began, and admits waiting calls.
    pub(crate) fn end_retry_after(self: &Arc<Self>) {
        self.update(Scheduler::end_retry_after);
    }

    /// See [`Scheduler::may_wait_until`].
    pub(crate) fn may_wait_until(&self, ticket: &Ticket, until: Instant) -> bool {
        self.state.lock().scheduler.may_wait_until(now(), ticket, until)
    }

    /// Returns the current state of the limit, the cool-down, the lanes and the tenants, for
    /// snapshots and metrics.
    pub fn view(&self) -> SchedulerView {
        self.state.lock().scheduler.view(now())
    }

    /// Returns what the queued call `waiter` waits for. `None` if it is no longer queued.
    pub(crate) fn explain(&self, waiter: WaiterId) -> Option<WaitExplanation> {
        self.state.lock().scheduler.explain(now(), waiter)
    }

    /// Returns that all slots in force are in use, as a sentence with their number and the cap.
    /// `None` unless an adaptive limit of a single server is below its cap.
    pub(crate) fn describe_adaptive_slots(&self) -> Option<String> {
        self.hints.adaptive_slots(self.slots_in_force())
    }

    /// Returns the number of slots in force. If several processes share an adaptive limit, these
    /// are the slots of all of them.
    pub(crate) fn slots_in_force(&self) -> usize {
        self.state.lock().scheduler.slots_in_force()
    }

    /// Sets the limit to `slots`, and stops adapting it. Attempts in flight continue even if they
    /// are more than `slots`.
    pub(crate) fn set_limit(self: &Arc<Self>, slots: usize) {
        self.hints.set_cap(slots);
        self.update(|scheduler, _| scheduler.set_limit(slots));
    }

    /// Replaces the replicas of the pool by `members`. Logs the beginning and the end of an outage
    /// of the pool.
    pub(crate) fn set_members(self: &Arc<Self>, members: &[ReplicaConfig]) {
        self.update(|scheduler, now| scheduler.set_members(now, members));
        self.log_pool_state();
    }

    /// Passes the result of a poll of the replica `id` to the scheduler, and then admits the
    /// waiting calls that can be admitted. Logs the beginning and the end of an outage of the pool.
    pub(crate) fn observe(self: &Arc<Self>, id: ReplicaId, observation: Observation) {
        self.update(|scheduler, now| scheduler.observe(now, id, observation));
        self.log_pool_state();
    }

    /// Passes the metrics of the engine of a single server to the scheduler, and then admits the
    /// waiting calls that can be admitted.
    pub(crate) fn on_engine_metrics(self: &Arc<Self>, metrics: &EngineMetrics) {
        self.update(|scheduler, now| scheduler.on_engine_metrics(now, metrics));
    }

    /// Returns the polls of replicas that are due now, and when the next polls are due.
    ///
    /// Also marks replicas as down that have not responded for too long, and cancels their attempts
    /// whose response has not begun.
    pub(crate) fn poll_requests(&self) -> PollRequests {
        let mut state = self.state.lock();
        let poll_requests = state.scheduler.poll_requests(now());
        self.cancel_on_down_replicas(&mut state.scheduler);
        poll_requests
    }

    /// Returns `true` if calls are queued or in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().scheduler.is_busy()
    }

    /// Returns the state of the pool's replicas. Empty if the target is not a pool.
    pub fn replicas(&self) -> Vec<ReplicaView> {
        self.state.lock().scheduler.replicas(now())
    }

    /// Chooses a replica for a request that needs no slot, because the request does not run a
    /// model. `None` if no replica can take requests.
    pub(crate) fn pick_without_slot(&self) -> Option<Placed> {
        self.state.lock().scheduler.pick_without_slot(now())
    }

    /// Returns `true` if the replica is down.
    pub(crate) fn is_down(&self, id: ReplicaId) -> bool {
        self.state.lock().scheduler.is_down(id)
    }

    /// Rejects queued and new calls from now on. Calls in flight continue.
    pub fn drain(self: &Arc<Self>) {
        self.update(|scheduler, _| scheduler.drain());
    }
}
