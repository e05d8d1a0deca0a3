//! What an attempt's end says of its replica, and of nobody else; and what becomes of the calls of one that goes down.

use std::time::Instant;

use super::{Lodging, Pool};
use crate::cooldown::{Attempt, Hold};
use crate::placement::{Fault, ReplicaId};
use crate::schedule::{Grant, GrantId, Scheduler};

impl Pool {
    /// An attempt was accepted.
    pub(in crate::schedule) fn succeeded(&mut self, now: Instant, lodging: &mut Lodging) {
        if let Some(site) = self.site_of(lodging) {
            site.said_room();
            self.placement.succeeded(now, &mut lodging.parcel);
            self.refresh(now);
        }
    }

    /// An attempt failed. Where nothing ran it goes to another at once, as long as there is one in the choice that it was not tried at: a replica which is full, or limits its
    /// rate, says nothing of the others. Nobody else decides whether there is one.
    ///
    /// A call that broke at another replica before may do so anywhere: it is no evidence against this one.
    fn failed(&mut self, now: Instant, lodging: &Lodging, fault: Fault, attempt: Attempt) -> Hold {
        if self.site_of(lodging).is_some() {
            let is_own = fault == Fault::Broke && attempt.has_failed();
            let counts = !is_own && self.placement.failed(now, &lodging.parcel, fault);
            if let Some(site) = self.site_of(lodging) {
                match fault {
                    Fault::Full(_) | Fault::Limited(_) if counts => {
                        site.turned_away(now.saturating_duration_since(attempt.sent()));
                    }
                    Fault::Full(_) | Fault::Limited(_) => {}
                    _ => site.said_room(),
                }
            }
            self.refresh(now);
        }
        if fault != Fault::Broke && !lodging.others.and(self.choice).is_empty() {
            Hold::RetryOther
        } else if !self.is_closed() {
            // All that it may go to are full, or were; and one says that it may be asked again at once.
            if matches!(fault, Fault::Full(_)) { Hold::AllFull } else { Hold::No }
        } else if matches!(fault, Fault::Limited(_)) {
            Hold::CoolDown
        } else {
            // It waits for the first that comes back; where nothing ran, that does not count against it.
            Hold::Outage
        }
    }

    /// It has an answer, or is over.
    pub(in crate::schedule) fn settled(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.fallen.retain(|fallen| *fallen != id);
    }
}

impl<W> Scheduler<W> {
    /// The replica failed the attempt that holds this slot: nothing is concluded of the others. Ask [`Scheduler::next`] and [`Scheduler::next_fallen`] then.
    ///
    /// Says [`Hold::RetryOther`] where nothing of it ran and there is another in the choice that the call was not tried at; where there is nobody in the choice any more,
    /// [`Hold::CoolDown`] after a 429 and [`Hold::Outage`] otherwise: it waits for the first that comes back. What all have no room for that are still there: [`Hold::AllFull`].
    pub fn failed_there(&mut self, now: Instant, grant: &mut Grant, fault: Fault) -> Hold {
        grant.judged();
        let hold = match (self.upstream.pool_mut(), &grant.lodging) {
            (Some(pool), Some(lodging)) => pool.failed(now, lodging, fault, grant.attempt),
            _ => Hold::No,
        };
        self.note_slots(now);
        hold
    }

    /// Something came from the replica that has this slot. Says whether it is back in the choice with it: ask [`Scheduler::next`] then.
    pub fn alive(&mut self, now: Instant, grant: &Grant) -> bool {
        let (Some(pool), Some(lodging)) = (self.upstream.pool_mut(), &grant.lodging) else { return false };
        if pool.site_of(lodging).is_none() {
            return false;
        }
        let before = pool.choice;
        pool.placement.alive(now, lodging.parcel.at);
        pool.refresh(now);
        let is_back = !pool.choice.less(before).is_empty();
        if is_back {
            self.note_slots(now);
        }
        is_back
    }

    /// Whether that replica is down, or has left: see [`Placement::is_down`](crate::placement::Placement::is_down).
    pub fn is_down(&self, id: ReplicaId) -> bool {
        self.upstream.pool().is_some_and(|pool| pool.placement.is_down(id))
    }

    /// A call that its replica has not begun to answer, and will not: it went down. To be called back, and queued again with what it was charged. Ask until `None`
    /// after each event; each is named once.
    pub fn next_fallen(&mut self) -> Option<GrantId> {
        let pool = self.upstream.pool_mut()?;
        let places = pool.placement.take_fallen();
        if !places.is_empty() {
            let Pool { unanswered, fallen, .. } = pool;
            unanswered.retain(|id, at| {
                let falls = places.contains(*at);
                fallen.extend(falls.then_some(*id));
                !falls
            });
        }
        pool.fallen.pop()
    }
}
