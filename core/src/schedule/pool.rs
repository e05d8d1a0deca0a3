//! A target that is a pool: each call that goes is placed at a replica, under the same lock.

use std::time::Instant;

use super::{Grant, Scheduler, Ticket};
use crate::config::PoolConfig;
use crate::cooldown::Hold;
use crate::placement::{
    Errands, Fault, Member, Parcel, Placed, Placement, Places, ReplicaId, ReplicaView, Sight, Wants, Work,
};

#[derive(Debug)]
pub(super) struct Pool {
    placement: Placement,
}

impl Pool {
    pub(super) fn new(config: &PoolConfig, now: Instant) -> Self {
        Self { placement: Placement::new(config, fastrand::u64(..), now) }
    }

    pub(super) fn place(&mut self, now: Instant, ticket: &Ticket) -> Option<Parcel> {
        let wants = ticket.wants.as_deref();
        let open =
            self.placement.in_choice(now).and(self.placement.eligible(wants, ticket.demand.least_input()));
        let work = Work { input: ticket.demand.input, output: ticket.demand.output };
        let at = self.placement.choose(now, wants, work, open)?;
        self.placement.sent(now, at, wants, work)
    }
}

impl Grant {
    /// The replica that it is placed at, where its target is a pool.
    pub fn placed(&self) -> Option<&Placed> {
        self.parcel.as_ref().map(|parcel| &parcel.placed)
    }
}

impl<W> Scheduler<W> {
    /// From now on these are the pool's replicas. Ask [`Scheduler::next`] then.
    pub fn set_members(&mut self, now: Instant, members: &[Member]) {
        if let Some(pool) = &mut self.pool {
            pool.placement.set_members(now, members);
        }
    }

    /// What was seen of a replica. Ask [`Scheduler::next`] then.
    pub fn saw(&mut self, now: Instant, id: ReplicaId, sight: Sight) {
        if let Some(pool) = &mut self.pool {
            pool.placement.saw(now, id, sight);
        }
    }

    /// What to ask of the replicas now.
    pub fn errands(&mut self, now: Instant) -> Errands {
        self.pool.as_mut().map(|pool| pool.placement.errands(now)).unwrap_or_default()
    }

    /// Its replicas; none where it is no pool.
    pub fn replicas(&self, now: Instant) -> Vec<ReplicaView> {
        self.pool.as_ref().map(|pool| pool.placement.view(now)).unwrap_or_default()
    }

    /// A replica for a request that takes no slot.
    pub fn beside(&mut self, now: Instant) -> Option<Placed> {
        let pool = self.pool.as_mut()?;
        let open = pool.placement.in_choice(now);
        let at = pool.placement.choose(now, None, Work::default(), open)?;
        let views = pool.placement.view(now);
        views.get(at).map(|view| Placed { id: view.id, url: view.url.clone() })
    }

    /// The replica failed the attempt that holds this slot: nothing is concluded of the others. Says whether it may go to one of them as if it had not been
    /// tried: nothing of it ran. Ask [`Scheduler::next`] then.
    pub fn failed_there(&mut self, now: Instant, grant: &mut Grant, fault: Fault) -> Hold {
        grant.judged();
        if let (Some(pool), Some(parcel)) = (&mut self.pool, &grant.parcel) {
            pool.placement.failed(now, parcel.at, fault);
        }
        if fault == Fault::Broke { Hold::No } else { Hold::Elsewhere }
    }

    /// Whether a call could go now to a replica that it does not avoid.
    pub fn has_others(&mut self, now: Instant, wants: &Wants, least_input: u64) -> bool {
        let Some(pool) = &mut self.pool else { return false };
        let avoided: Places = wants.avoid.iter().filter_map(|id| pool.placement.place_of(*id)).collect();
        let open = pool.placement.in_choice(now).and(pool.placement.eligible(Some(wants), least_input));
        !open.less(avoided).is_empty()
    }

    /// Whether that replica is down.
    pub fn is_down(&self, now: Instant, id: ReplicaId) -> bool {
        self.replicas(now).iter().any(|replica| replica.id == id && replica.state == "down")
    }

    pub(super) fn left(&mut self, now: Instant, parcel: Option<Parcel>) {
        if let (Some(pool), Some(parcel)) = (&mut self.pool, parcel) {
            pool.placement.ended(now, parcel);
        }
    }
}
