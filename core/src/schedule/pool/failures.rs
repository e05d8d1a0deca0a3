//! What an attempt's end says of its replica, and of nobody else; and what becomes of the calls of one that goes down.

use std::time::Instant;

use super::{Assignment, Pool};
use crate::cooldown::{Attempt, Hold};
use crate::placement::{Fault, ReplicaId};
use crate::schedule::{Grant, GrantId, Scheduler};

impl Pool {
    /// An attempt was accepted.
    pub(super) fn succeeded(&mut self, now: Instant, assignment: &mut Assignment) {
        if let Some(replica) = self.replica_of(assignment) {
            replica.on_room();
            self.placement.succeeded(now, &mut assignment.placed_call);
            self.refresh(now);
        }
    }

    /// An attempt failed. Where nothing ran it goes to another at once, as long as there is one in the eligible that it was not tried at: a replica which is full, or limits its
    /// rate, says nothing of the others. Nobody else decides whether there is one.
    ///
    /// A call that broke at another replica before may do so anywhere: it is no evidence against this one.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        assignment: &Assignment,
        fault: Fault,
        attempt: Attempt,
    ) -> Hold {
        if self.replica_of(assignment).is_some() {
            let is_own = fault == Fault::Broke && attempt.has_failed();
            let counts = !is_own && self.placement.failed(now, &assignment.placed_call, fault);
            if let Some(replica) = self.replica_of(assignment) {
                match fault {
                    Fault::Full(_) | Fault::Limited(_) if counts => {
                        replica.on_turned_away(now.saturating_duration_since(attempt.sent()));
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
            // All that it may go to are full, or were; and one says that it may be asked again at once.
            if matches!(fault, Fault::Full(_)) { Hold::AllFull } else { Hold::No }
        } else if matches!(fault, Fault::Limited(_)) {
            Hold::CoolDown
        } else {
            // It waits for the first that comes back; where nothing ran, that does not count against it.
            Hold::Outage
        }
    }

    /// Something came from the replica of that call. Says whether it is back in the eligible with it.
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

    /// It has an answer, or is over.
    pub(super) fn settled(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.stranded.retain(|stranded| *stranded != id);
    }
}

impl<W> Scheduler<W> {
    /// The replica failed the attempt that holds this slot: nothing is concluded of the others. Ask [`Scheduler::next`] and [`Scheduler::next_stranded`] then.
    ///
    /// Says [`Hold::RetryOther`] where nothing of it ran and there is another in the eligible that the call was not tried at; where there is nobody in the eligible any more,
    /// [`Hold::CoolDown`] after a 429 and [`Hold::Outage`] otherwise: it waits for the first that comes back. What all have no room for that are still there: [`Hold::AllFull`].
    pub fn on_replica_failure(&mut self, now: Instant, grant: &mut Grant, fault: Fault) -> Hold {
        grant.judged = true;
        let slot = &grant.slot;
        let failed =
            |pool: &mut Pool| Some(pool.failed(now, slot.assignment.as_deref()?, fault, slot.attempt));
        let hold = self.capacity.with_pool(failed).flatten().unwrap_or(Hold::No);
        self.capacity.update(now);
        hold
    }

    /// Something came from the replica that has this slot. Says whether it is back in the eligible with it: ask [`Scheduler::next`] then.
    pub fn on_alive(&mut self, now: Instant, grant: &Grant) -> bool {
        let Some(assignment) = &grant.slot.assignment else { return false };
        let is_back = self.capacity.with_pool(|pool| pool.on_alive(now, assignment)).unwrap_or(false);
        if is_back {
            self.capacity.update(now);
        }
        is_back
    }

    /// Whether that replica is down, or has left: see [`Placement::is_down`](crate::placement::Placement::is_down).
    pub fn is_down(&self, id: ReplicaId) -> bool {
        self.capacity.upstream.as_pool().is_some_and(|pool| pool.placement.is_down(id))
    }

    /// A call that its replica has not begun to answer, and will not: it went down. To be called back, and queued again with what it was charged. Ask until `None`
    /// after each event; each is named once.
    pub fn next_stranded(&mut self) -> Option<GrantId> {
        self.capacity.upstream.as_pool_mut()?.next_stranded()
    }
}
