//! The assignment of calls to the replicas of a pool.

use std::time::Instant;

use super::Pool;
use crate::placement::{Placed, PlacedCall, ReplicaSet, Work};
use crate::schedule::{Admitted, Candidate, Grant, MemoryUse, Tracked};

/// The replica of the pool that a call was assigned to, with what the pool tracks about the call
/// there.
#[derive(Debug)]
pub(in crate::schedule) struct Assignment {
    pub(super) placed_call: PlacedCall,
    /// The other replicas where the call may be tried next. Empty if the call had been tried at
    /// this replica before.
    pub(super) others: ReplicaSet,
    /// The other replicas where the call was not tried, whether they may take it or not. Empty if
    /// the call had been tried at this replica before.
    pub(super) untried: ReplicaSet,
    /// When the call was sent as the half-open probe of a full replica, that is, the one call that
    /// shows whether the replica accepts calls again. `None` if it was not.
    pub(super) probe_since: Option<Instant>,
    /// Whether the answer is streamed and its first token has not been reported.
    pub(in crate::schedule) awaits: bool,
}

impl Assignment {
    pub(in crate::schedule) fn placed(&self) -> &Placed {
        &self.placed_call.placed
    }
}

impl Pool {
    /// Assigns a call to a replica, and takes a slot and memory there. The choice uses the last
    /// measurement of slots and memory. Memory that is reserved for other calls is used only if
    /// there is no other.
    ///
    /// A call that was forced may exceed the slots and the memory of its replica. Returns `None` if
    /// the pool has no replica.
    pub(super) fn assign(
        &mut self,
        now: Instant,
        admitted: &Admitted<'_>,
    ) -> Option<(Assignment, Option<Tracked>, MemoryUse)> {
        let Admitted { id, call: Candidate { ticket, needs, .. }, .. } = *admitted;
        let wants = ticket.wants.as_deref();
        let (may, tried) = (self.replicas_of(needs.class), self.tried(wants));
        let open = self.best_replicas(admitted, may, tried);
        let work = Work { input: ticket.demand.input, output: ticket.demand.output };
        // A replica outside the set would be accounted for nowhere.
        let chosen = self.placement.choose(now, wants, work, open).filter(|at| open.contains(*at));
        let at = chosen.or_else(|| open.iter().next())?;
        let placed_call = self.placement.on_sent(now, at, wants, work)?;
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        let probe_since = replica.on_sent(now);
        let tracked = replica.limiter.on_sent(now, ticket);
        let memory = replica.admit(ticket);
        self.unanswered.insert(id, at);
        self.refresh(now);
        let all: ReplicaSet = (0..self.replicas.len()).collect();
        let untried =
            if tried.contains(at) { ReplicaSet::NONE } else { all.less(tried).less(ReplicaSet::one(at)) };
        let others = may.and(untried);
        let awaits = ticket.streams;
        let assignment = Assignment { placed_call, others, untried, probe_since, awaits };
        Some((assignment, tracked, memory))
    }

    /// Returns the replicas to choose from: the first nonempty set of the following. `may` is the
    /// set of replicas that may take the call. Of that set, only replicas where the call was not
    /// tried (not in `tried`) are returned if there are any, and of those only replicas that are
    /// not ejected if there are any.
    ///
    /// 1. Eligible replicas in `may` with a slot, and with enough memory that is not reserved. A
    ///    call without input may use reserved memory.
    /// 2. Eligible replicas in `may` with a slot and enough memory.
    /// 3. Eligible replicas in `may` with a slot.
    /// 4. Eligible replicas in `may`.
    /// 5. Replicas in `may`.
    /// 6. All replicas.
    fn best_replicas(&self, admitted: &Admitted<'_>, may: ReplicaSet, tried: ReplicaSet) -> ReplicaSet {
        let Admitted { call: Candidate { ticket, .. }, in_flight, reserved, exceeds_share, .. } = *admitted;
        let need = u32::try_from(ticket.demand.input).unwrap_or(u32::MAX);
        let among = may.and(self.eligible);
        let forecast = self.forecast(ticket);
        let fits = |at: &usize| self.replica(*at).is_some_and(|replica| replica.fits(ticket, &forecast));
        // `in_flight` includes this call.
        let with_slot = among.and(self.with_free_slot(in_flight.saturating_sub(1)));
        let has_room =
            |at: &usize| self.replica(*at).is_some_and(|at| at.limiter.load().has_first_token_room);
        let with_room: ReplicaSet = with_slot.iter().filter(|at| !exceeds_share || has_room(at)).collect();
        let with_slot = if with_room.is_empty() { with_slot } else { with_room };
        let open: ReplicaSet = with_slot.iter().filter(fits).collect();
        let free = if need > 0 { open.less(reserved) } else { open };
        let present = || (0..self.replicas.len()).filter(|at| self.replica(*at).is_some()).collect();
        // The forecast may have grown since the call was picked, but the call has its slot.
        let best_first = [free, open, with_slot, among, may].into_iter();
        let best = best_first.fold(ReplicaSet::NONE, ReplicaSet::or_if_empty).or_if_empty(present());
        let worse = [tried, self.placement.ejected()].into_iter();
        worse.fold(best, |best, worse| best.less(worse).or_if_empty(best))
    }
}

impl Grant {
    /// Returns the replica that the attempt was assigned to. Returns `None` if the target is not a
    /// pool, or if the pool had no replica.
    pub fn placed(&self) -> Option<&Placed> {
        self.slot.assignment.as_ref().map(|assignment| assignment.placed())
    }

    /// Returns the index in its pool of the replica that the attempt was assigned to. Returns
    /// `None` in the same cases as [`Grant::placed`].
    pub fn replica_index(&self) -> Option<usize> {
        self.slot.assignment.as_ref().map(|assignment| assignment.placed_call.at)
    }
}
