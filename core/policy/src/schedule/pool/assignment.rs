//! The assignment of calls to replicas, and what a call takes there.

use std::time::Instant;

use super::Pool;
use crate::kv::Progress;
use crate::placement::{Placed, PlacedCall, ReplicaSet, Work};
use crate::schedule::limiter::Tracked;
use crate::schedule::upstream::{Admitted, MemoryUse};
use crate::schedule::{Grant, GrantId, Ticket};

/// A call at its replica.
#[derive(Debug)]
pub(in crate::schedule) struct Assignment {
    pub(super) placed_call: PlacedCall,
    /// The replicas where the call may be tried next without waiting. Empty if it was tried at this
    /// one before.
    pub(super) others: ReplicaSet,
    space: MemoryUse,
    /// Whether the call probes, for all others, whether its replica has room again.
    is_half_open_probe: bool,
    /// Whether the first token is awaited.
    pub(in crate::schedule) awaits: bool,
}

impl Assignment {
    pub(in crate::schedule) fn placed(&self) -> &Placed {
        &self.placed_call.placed
    }

    pub(in crate::schedule) fn progress(&self) -> &Progress {
        &self.space.progress
    }
}

impl Pool {
    /// Assigns a call to a replica by the last measurement, avoiding reserved memory.
    ///
    /// A forced call goes to a replica that may take it even if it has no room. Returns `None` if
    /// there is no replica.
    pub(super) fn assign(
        &mut self,
        now: Instant,
        admitted: &Admitted<'_>,
    ) -> Option<(Assignment, Option<Tracked>)> {
        let Admitted { id, ticket, class, in_flight, reserved } = *admitted;
        // Without this call.
        let in_flight = in_flight.saturating_sub(1);
        let wants = ticket.wants.as_deref();
        let (may, tried) = (self.replicas_of(class), self.tried(wants));
        let open = self.fitting(ticket, may, tried, in_flight, reserved);
        let work = Work { input: ticket.demand.input, output: ticket.demand.output };
        // A replica outside the set would be accounted for nowhere.
        let chosen = self.placement.choose(now, wants, work, open).filter(|at| open.contains(*at));
        let at = chosen.or_else(|| open.iter().next())?;
        let placed_call = self.placement.on_sent(now, at, wants, work)?;
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        let is_half_open_probe = replica.on_sent(now);
        let tracked = replica.limiter.on_sent(now, ticket);
        let space = replica.admit(ticket);
        self.unanswered.insert(id, at);
        self.refresh(now);
        let others =
            if tried.contains(at) { ReplicaSet::NONE } else { may.less(tried).less(ReplicaSet::one(at)) };
        Some((Assignment { placed_call, others, space, is_half_open_probe, awaits: ticket.streams }, tracked))
    }

    /// Returns the replicas with room for the call, untried ones first; if there are none, those to
    /// which it is least wrong to send it.
    fn fitting(
        &self,
        ticket: &Ticket,
        may: ReplicaSet,
        tried: ReplicaSet,
        in_flight: usize,
        reserved: ReplicaSet,
    ) -> ReplicaSet {
        let need = u32::try_from(ticket.demand.input).unwrap_or(u32::MAX);
        let among = may.and(self.eligible);
        let forecast = self.forecast(ticket);
        let fits = |at: &usize| self.replica(*at).is_some_and(|replica| replica.fits(ticket, &forecast));
        let with_slot = among.and(self.open(in_flight));
        let open: ReplicaSet = with_slot.iter().filter(fits).collect();
        let free = if need > 0 { open.less(reserved) } else { open };
        let present =
            || self.replicas.iter().enumerate().filter_map(|(at, replica)| replica.as_ref().map(|_| at));
        let new = |places: ReplicaSet| places.less(tried);
        // The forecast may have grown since the call was picked, but the call has its slot.
        let fitting = [new(free), free, new(open), open, new(with_slot), with_slot];
        let others = [new(among), among, new(may), may];
        fitting
            .into_iter()
            .chain(others)
            .find(|places| !places.is_empty())
            .unwrap_or_else(|| present().collect())
    }

    /// Ends a call at its replica, and releases what it took there.
    pub(super) fn leave(&mut self, now: Instant, id: GrantId, assignment: Assignment) {
        self.settled(id);
        if let Some(replica) = self.replica_of(&assignment) {
            replica.on_end(assignment.is_half_open_probe);
            replica.release(assignment.space);
        }
        if let Some(left) = self.placement.on_ended(assignment.placed_call)
            && let Some(replica) = self.replicas.get_mut(left)
        {
            *replica = None;
        }
        self.refresh(now);
    }
}

impl Grant {
    /// Returns the replica that the call was assigned to, if the target is a pool.
    pub fn placed(&self) -> Option<&Placed> {
        self.slot.assignment.as_ref().map(|assignment| assignment.placed())
    }

    /// Returns the index of that replica in the pool's table.
    pub fn replica_index(&self) -> Option<usize> {
        self.slot.assignment.as_ref().map(|assignment| assignment.placed_call.at)
    }
}
