//! Results of attempts at replicas, and the calls of replicas that go down.

use std::time::Instant;

use super::{Assignment, Pool};
use crate::cooldown::{Attempt, Hold};
use crate::placement::{Fault, ReplicaId};
use crate::schedule::{Grant, GrantId, Scheduler};

impl Pool {
    /// Handles an accepted attempt.
    pub(super) fn succeeded(&mut self, now: Instant, assignment: &mut Assignment) {
        if let Some(replica) = self.replica_of(assignment) {
            replica.on_room();
            self.placement.on_accepted(now, &mut assignment.placed_call);
            self.refresh(now);
        }
    }

    /// Handles a failed attempt, and returns what the call should do.
    ///
    /// A call of which nothing ran is retried at once at another eligible replica where it was not
    /// tried: a full or rate-limiting replica says nothing about the others.
    ///
    /// A call that failed at another replica before may fail anywhere, so that it is no evidence
    /// against this one.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        assignment: &Assignment,
        fault: Fault,
        attempt: Attempt,
    ) -> Hold {
        if self.replica_of(assignment).is_some() {
            let is_own = fault == Fault::Broke && attempt.has_failed;
            let counts = !is_own && self.placement.on_failed(now, &assignment.placed_call, fault);
            if let Some(replica) = self.replica_of(assignment) {
                match fault {
                    Fault::Full(_) | Fault::Limited(_) if counts => {
                        replica.on_turned_away(now.saturating_duration_since(attempt.sent));
                    }
                    Fault::Full(_) | Fault::Limited(_) => {}
                    _ => replica.on_room(),
                }
            }
            self.refresh(now);
        }
        if fault != Fault::Broke && !assignment.others.and(self.eligible).is_empty() {
            Hold::RetryOther
        } else if !self.is_empty() {
            // All replicas that may take the call are or were full, and one may be asked again at
            // once.
            if matches!(fault, Fault::Full(_)) { Hold::AllFull } else { Hold::No }
        } else if matches!(fault, Fault::Limited(_)) {
            Hold::CoolDown
        } else {
            // The call waits for the first replica that returns. If nothing ran, the attempt does
            // not count against it.
            Hold::Outage
        }
    }

    /// Handles a sign of life. Returns `true` if a replica became eligible by it.
    fn on_alive(&mut self, now: Instant, assignment: &Assignment) -> bool {
        if self.replica_of(assignment).is_none() {
            return false;
        }
        let before = self.eligible;
        self.placement.on_alive(now, assignment.placed_call.at);
        self.refresh(now);
        !self.eligible.less(before).is_empty()
    }

    fn next_stranded(&mut self) -> Option<GrantId> {
        let places = self.placement.take_stranded();
        if !places.is_empty() {
            let Self { unanswered, stranded, .. } = self;
            unanswered.retain(|id, at| {
                let falls = places.contains(*at);
                stranded.extend(falls.then_some(*id));
                !falls
            });
        }
        self.stranded.pop()
    }

    /// Records that a call has an answer or has ended.
    pub(super) fn settled(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.stranded.retain(|stranded| *stranded != id);
    }
}

impl<W> Scheduler<W> {
    /// Handles an attempt that its replica failed. Call [`Scheduler::next`] and
    /// [`Scheduler::next_stranded`] afterwards.
    ///
    /// Returns:
    ///
    /// - [`Hold::RetryOther`] if nothing ran and the call was not tried at another eligible replica;
    /// - [`Hold::AllFull`] if all replicas that may take it are full;
    /// - [`Hold::CoolDown`] after a 429, otherwise [`Hold::Outage`], if no replica is eligible any
    ///   more: the call waits for the first that returns.
    pub fn on_replica_failure(&mut self, now: Instant, grant: &mut Grant, fault: Fault) -> Hold {
        grant.judged = true;
        let slot = &grant.slot;
        let failed =
            |pool: &mut Pool| Some(pool.failed(now, slot.assignment.as_deref()?, fault, slot.attempt));
        let hold = self.capacity.with_pool(failed).flatten().unwrap_or(Hold::No);
        self.capacity.update(now);
        hold
    }

    /// Handles a sign of life from the replica of a call. Returns `true` if a replica became
    /// eligible by it; call [`Scheduler::next`] then.
    pub fn on_alive(&mut self, now: Instant, grant: &Grant) -> bool {
        let Some(assignment) = &grant.slot.assignment else { return false };
        let is_back = self.capacity.with_pool(|pool| pool.on_alive(now, assignment)).unwrap_or(false);
        if is_back {
            self.capacity.update(now);
        }
        is_back
    }

    /// Returns `true` if the replica is down or has left. See
    /// [`Placement::is_down`](crate::placement::Placement::is_down).
    pub fn is_down(&self, id: ReplicaId) -> bool {
        self.capacity.upstream.as_pool().is_some_and(|pool| pool.placement.is_down(id))
    }

    /// Returns a call to cancel and queue again with its charge, because its replica went down
    /// before it answered.
    ///
    /// Call until `None` after each event; each call is returned once.
    pub fn next_stranded(&mut self) -> Option<GrantId> {
        self.capacity.upstream.as_pool_mut()?.next_stranded()
    }
}
