//! The operations of a pool that several processes share. See [`Placement::on_placements`].

use std::time::Instant;

use super::Pool;
use crate::placement::{Placement, Placements};
use crate::schedule::Scheduler;

impl Pool {
    /// Returns the number of processes that share the pool, as last heard. At least 1.
    pub(in crate::schedule) fn processes(&self) -> usize {
        self.placement.processes()
    }
}

impl<W> Scheduler<W> {
    /// Tells the processes that share the pool of own calls from now on. Forgets their earlier
    /// calls. Returns the first message for them, or `None` if the target is not a pool.
    pub fn join_partners(&mut self) -> Option<Placements> {
        self.placement().map(Placement::join_partners)
    }

    /// Forgets the calls of the processes that share the pool, because the connection to them was
    /// lost.
    pub fn leave_partners(&mut self) {
        self.placement().into_iter().for_each(Placement::leave_partners);
    }

    /// Returns `true` if calls are in flight, or, at a pool, were sent since the last time.
    pub fn take_activity(&mut self) -> bool {
        let has_calls = self.capacity.in_flight > 0;
        self.placement().is_some_and(Placement::take_activity) || has_calls
    }

    /// Returns `true` if there are events of calls for the processes that share the pool, and marks
    /// them as announced, so that `true` is returned once for the events that
    /// [`Scheduler::take_placements`] returns. Call this method after each event.
    pub fn take_placements_announcement(&mut self) -> bool {
        self.placement().is_some_and(Placement::take_placements_announcement)
    }

    /// Returns what the processes that share the pool must be told. Call this method until it
    /// returns `None`.
    pub fn take_placements(&mut self) -> Option<Placements> {
        self.placement()?.take_placements()
    }

    /// Applies events of calls of another process. See [`Placement::on_placements`]. They change
    /// which replicas later calls are sent to.
    pub fn on_placements(
        &mut self,
        now: Instant,
        process: Option<u64>,
        others: usize,
        placements: &Placements,
    ) {
        if let Some(placement) = self.placement() {
            placement.on_placements(now, process, others, placements);
        }
    }

    fn placement(&mut self) -> Option<&mut Placement> {
        self.capacity.upstream.as_pool_mut().map(|pool| &mut pool.placement)
    }
}
