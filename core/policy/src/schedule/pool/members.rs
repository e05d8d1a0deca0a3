//! Membership, observations and views of a pool's replicas.

use std::time::Instant;
use tidegate_config::ReplicaConfig;

use super::Pool;
use super::replica_slots::ReplicaSlots;
use crate::placement::{Observation, Placed, PollRequests, ReplicaId, ReplicaView, SlotsView};
use crate::schedule::Scheduler;
use crate::schedule::limiter::Limiter;
use crate::schedule::upstream::Upstream;

impl Pool {
    pub(super) fn set_members(&mut self, now: Instant, members: &[ReplicaConfig]) {
        self.placement.set_members(now, members);
        for view in self.placement.view(now) {
            let Some(at) = self.placement.index_of(view.id) else { continue };
            if self.replicas.len() <= at {
                self.replicas.resize_with(at + 1, || None);
            }
            let limiter = || Limiter::new(self.each.slots, self.each.adaptive.as_ref(), now);
            let Some(place) = self.replicas.get_mut(at) else { continue };
            if place.as_ref().is_none_or(|replica| replica.placed.id != view.id) {
                *place = Some(ReplicaSlots::new(Placed { id: view.id, url: view.url.clone() }, limiter()));
            }
            let told =
                members.iter().find(|member| member.url == view.url).and_then(|member| member.kv_tokens);
            let Some(replica) = place else { continue };
            match told.or(self.each.kv_tokens) {
                Some(tokens) => replica.set_memory(tokens, self.each.kv_headroom, true),
                None => replica.ask_memory(),
            }
        }
        // Replicas without calls have left at once.
        let Self { replicas, placement, .. } = self;
        for place in replicas {
            place.take_if(|replica| placement.index_of(replica.placed.id).is_none());
        }
        self.refresh(now);
    }

    /// Applies an observation. Returns `true` if the replica may take other calls than before.
    fn observe(&mut self, now: Instant, id: ReplicaId, observation: Observation) -> bool {
        let headroom = self.each.kv_headroom;
        let replica = self.placement.index_of(id).and_then(|at| self.replica_mut(at));
        let changed = replica.is_some_and(|replica| match &observation {
            Observation::Metrics(standing) => {
                standing.kv_tokens.into_iter().for_each(|tokens| replica.set_memory(tokens, headroom, false));
                replica.shares_prefixes = standing.shares_prefixes;
                false
            }
            Observation::Models(models) => replica.models.replace(models.clone()).as_ref() != Some(models),
            Observation::ConnectRefused | Observation::ProbeTimeout | Observation::ProbeFailed => {
                replica.on_room();
                false
            }
            Observation::ProbeOk | Observation::MetricsUnreadable => false,
        });
        self.placement.observe(now, id, observation);
        self.refresh(now);
        changed
    }

    fn views(&self, now: Instant) -> Vec<ReplicaView> {
        let mut views = self.placement.view(now);
        for view in &mut views {
            let replica = self.placement.index_of(view.id).and_then(|at| self.replica(at));
            view.slots = replica.map(|replica| {
                let adaptive = replica.limiter.view(now, replica.in_flight);
                SlotsView {
                    limit: replica.slots(),
                    in_flight: replica.in_flight,
                    cuts: adaptive.as_ref().map_or(0, |adaptive| adaptive.limit.cuts),
                    adaptive,
                    kv: replica.memory(),
                }
            });
        }
        views
    }
}

impl<W> Scheduler<W> {
    /// Sets the pool's replicas, and recomputes which of them may take each waiting call. Call
    /// [`Scheduler::next`] afterwards.
    pub fn set_members(&mut self, now: Instant, members: &[ReplicaConfig]) {
        let set = |pool: &mut Pool| {
            pool.tick(now);
            pool.set_members(now, members);
        };
        if self.capacity.with_pool(set).is_some() {
            self.reclassify(now);
        }
    }

    /// Applies an observation of a replica. Call [`Scheduler::next`] and
    /// [`Scheduler::next_stranded`] afterwards.
    pub fn observe(&mut self, now: Instant, id: ReplicaId, observation: Observation) {
        let see = |pool: &mut Pool| {
            pool.tick(now);
            pool.observe(now, id, observation)
        };
        match self.capacity.with_pool(see) {
            Some(true) => self.reclassify(now),
            Some(false) => {
                self.capacity.update(now);
                self.watch(now);
            }
            None => {}
        }
    }

    /// Returns what to poll from the replicas now. Call [`Scheduler::next_stranded`] afterwards,
    /// because a replica that stayed silent may be down now.
    pub fn poll_requests(&mut self, now: Instant) -> PollRequests {
        let is_busy = self.is_busy();
        let poll_requests = |pool: &mut Pool| {
            if is_busy {
                // Waiting calls send nothing, but need fresh observations.
                pool.placement.wake(now);
            }
            pool.placement.poll_requests(now)
        };
        self.capacity.with_pool(poll_requests).unwrap_or_default()
    }

    /// Returns the state of the replicas; empty if the target is not a pool.
    pub fn replicas(&self, now: Instant) -> Vec<ReplicaView> {
        self.capacity.upstream.as_pool().map(|pool| pool.views(now)).unwrap_or_default()
    }

    /// Returns a replica for a request that takes no slot.
    pub fn pick_without_slot(&mut self, now: Instant) -> Option<Placed> {
        self.capacity.upstream.as_pool_mut()?.placement.pick_without_slot(now)
    }
}
