//! How the pool reacts to the outcome of attempts: accepted calls, failures, and calls whose
//! replica went down.

use std::time::Instant;

use super::{Assignment, Pool};
use crate::cooldown::Attempt;
use crate::placement::{Fault, ReplicaId, ReplicaSet};
use crate::retry::RetryPath;
use crate::schedule::{Grant, GrantId, Scheduler};

impl Pool {
    /// Records that a replica accepted a call. A replica that was full no longer counts as full.
    pub(super) fn on_accepted(&mut self, now: Instant, assignment: &mut Assignment) {
        if let Some(replica) = self.replica_of(assignment) {
            replica.on_has_room();
            self.placement.on_accepted(now, &mut assignment.placed_call);
            self.refresh(now);
        }
    }

    /// Records that an attempt failed at its replica, and returns what its call should do.
    ///
    /// If the replica ran nothing of the call, the call is retried at once at another eligible
    /// replica where it was not tried. If the replica may have run the call or has rejected it, and
    /// an earlier attempt of the call has failed, too, the failure does not count against the
    /// replica, because the call itself may be the cause.
    pub(super) fn on_failed(
        &mut self,
        now: Instant,
        assignment: &Assignment,
        fault: Fault,
        attempt: Attempt,
    ) -> RetryPath {
        if self.replica_of(assignment).is_some() {
            let failed_before = fault.may_have_run() && attempt.has_failed;
            let counts = !failed_before && self.placement.on_failed(now, &assignment.placed_call, fault);
            if let Some(replica) = self.replica_of(assignment) {
                match fault {
                    Fault::Full(_) | Fault::Limited(_) if counts => {
                        replica.on_rejected(now.saturating_duration_since(attempt.sent));
                    }
                    Fault::Full(_) | Fault::Limited(_) => {}
                    // Such a call does not show whether there is room.
                    _ if fault.may_be_of_call() => {}
                    _ => replica.on_has_room(),
                }
            }
            self.refresh(now);
        }
        let others = match fault {
            _ if fault.may_have_run() => ReplicaSet::NONE,
            // The call waits for a replica that may serve its model, also if it is not eligible
            // now.
            Fault::NoModel => assignment.untried.and(self.placement.replicas_to_try(&assignment.placed_call)),
            _ => assignment.others.and(self.eligible),
        };
        if !others.is_empty() {
            RetryPath::OtherReplica
        } else if fault == Fault::NoModel || fault.may_be_of_call() {
            RetryPath::Backoff
        } else if !self.is_empty() {
            // All replicas that may take the call are or were full, but an eligible one may be
            // tried again.
            if matches!(fault, Fault::Full(_)) { RetryPath::AllReplicasFull } else { RetryPath::Backoff }
        } else if matches!(fault, Fault::Limited(_)) {
            RetryPath::AfterCoolDown
        } else {
            // The call waits for the first replica that returns. If nothing ran, the attempt does
            // not count against it.
            RetryPath::AfterOutage
        }
    }

    /// Removes a call from the calls without a response head, because its response head has arrived
    /// or the call has ended.
    pub(super) fn remove_unanswered(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.stranded.retain(|stranded| *stranded != id);
    }
}

impl<W> Scheduler<W> {
    /// Records that an attempt failed at its replica. Call [`Scheduler::next`] and
    /// [`Scheduler::next_stranded`] afterwards.
    ///
    /// Returns what the call should do:
    ///
    /// - [`RetryPath::OtherReplica`] if the replica ran nothing of the call, and another eligible
    ///   replica may take the call where it was not tried. After [`Fault::NoModel`], the other
    ///   replica may be one that is not eligible now.
    /// - [`RetryPath::AllReplicasFull`] if all replicas that may take the call are full.
    /// - [`RetryPath::AfterCoolDown`] after a status 429, otherwise [`RetryPath::AfterOutage`], if
    ///   no replica is eligible any more. The call waits for the first replica that returns.
    /// - [`RetryPath::Backoff`] otherwise.
    pub fn on_replica_failure(&mut self, now: Instant, grant: &mut Grant, fault: Fault) -> RetryPath {
        grant.is_reported = true;
        let slot = &grant.slot;
        let failed =
            |pool: &mut Pool| Some(pool.on_failed(now, slot.assignment.as_deref()?, fault, slot.attempt));
        let path = self.capacity.with_pool(failed).flatten().unwrap_or(RetryPath::Backoff);
        if fault == Fault::NoModel {
            self.reclassify(now);
        } else {
            self.capacity.refresh_and_record(now);
        }
        path
    }

    /// Records that the replica of a call has sent data. Returns `true` if a replica became
    /// eligible by it; the driver must then call [`Scheduler::next`].
    pub fn on_alive(&mut self, now: Instant, grant: &Grant) -> bool {
        let Some(assignment) = &grant.slot.assignment else { return false };
        let on_alive = |pool: &mut Pool| {
            pool.replica_of(assignment)?;
            let before = pool.eligible;
            pool.placement.on_alive(now, assignment.placed_call.at);
            pool.refresh(now);
            Some(!pool.eligible.less(before).is_empty())
        };
        let is_back = self.capacity.with_pool(on_alive).flatten().unwrap_or(false);
        if is_back {
            self.capacity.refresh_and_record(now);
        }
        is_back
    }

    /// Returns `true` if the replica is down or has left the pool. Returns `false` if the target is
    /// not a pool.
    pub fn is_down(&self, id: ReplicaId) -> bool {
        self.capacity.upstream.as_pool().is_some_and(|pool| pool.placement.is_down(id))
    }

    /// Returns a call in flight that the driver should cancel and queue again, because its replica
    /// went down before its response head arrived. Returns `None` if there is none.
    ///
    /// Call until `None` after each event; each call is returned once.
    pub fn next_stranded(&mut self) -> Option<GrantId> {
        let Pool { placement, unanswered, stranded, .. } = self.capacity.upstream.as_pool_mut()?;
        let down = placement.take_stranded();
        if !down.is_empty() {
            stranded.extend(unanswered.iter().filter(|(_, at)| down.contains(**at)).map(|(id, _)| *id));
            unanswered.retain(|_, at| !down.contains(*at));
        }
        stranded.pop()
    }
}
