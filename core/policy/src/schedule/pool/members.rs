//! The replicas of a pool: changes of the set, observations such as probe results, and their state
//! for snapshots.

use std::time::Instant;

use super::{Pool, replica_slots::ReplicaSlots};
use crate::placement::{Observation, Placed, PollRequests, ReplicaId, ReplicaView, SlotsView};
use crate::schedule::{Limiter, Scheduler, Upstream};
use tidegate_config::ReplicaConfig;

impl Pool {
    /// Sets the replicas. A replica that is not in `members` gets no new calls, and leaves the pool
    /// when its last call ends.
    pub(super) fn set_members(&mut self, now: Instant, members: &[ReplicaConfig]) {
        self.tick(now);
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
            let configured =
                members.iter().find(|member| member.url == view.url).and_then(|member| member.kv_tokens);
            let Some(replica) = place else { continue };
            match configured.or(self.each.kv_tokens) {
                Some(tokens) => replica.set_memory(tokens, self.each.kv_headroom, true),
                None => replica.is_size_configured = false,
            }
        }
        // Replicas without calls have left at once.
        let Self { replicas, placement, .. } = self;
        for place in replicas {
            place.take_if(|replica| placement.index_of(replica.placed.id).is_none());
        }
        self.refresh(now);
    }

    /// Keeps the replicas polled for the next 10 s, although no call may wait.
    pub(in crate::schedule) fn keep_polled(&mut self, now: Instant) {
        self.placement.wake(now);
    }

    /// Applies an observation of a replica. Returns `true` if the models of the replica have
    /// changed, so that it may take other calls than before.
    fn observe(&mut self, now: Instant, id: ReplicaId, observation: Observation) -> bool {
        self.tick(now);
        let headroom = self.each.kv_headroom;
        let is_about_models =
            matches!(observation, Observation::Models(_) | Observation::ModelsUnreadable(_));
        let lacked_models = is_about_models && self.placement.is_lacking_models(id);
        let replica = self.placement.index_of(id).and_then(|at| self.replica_mut(at));
        let changed = replica.is_some_and(|replica| match &observation {
            Observation::Metrics(metrics) => {
                metrics.kv_tokens.into_iter().for_each(|tokens| replica.set_memory(tokens, headroom, false));
                replica.shares_prefixes = metrics.shares_prefixes;
                replica.limiter.on_engine_metrics(now, metrics);
                false
            }
            Observation::Models(models) => replica.models.replace(models.clone()).as_ref() != Some(models),
            Observation::ConnectRefused | Observation::ProbeTimeout | Observation::ProbeFailed => {
                replica.on_has_room();
                false
            }
            Observation::ProbeOk | Observation::MetricsUnreadable => false,
            Observation::ModelsUnreadable(_) => false,
        });
        self.placement.observe(now, id, observation);
        self.refresh(now);
        changed || lacked_models
    }
}

impl<W> Scheduler<W> {
    /// Sets the replicas of the pool. Call [`Scheduler::next`] afterwards.
    ///
    /// A replica that is not in `members` gets no new calls, and leaves the pool when its last call
    /// ends. Does nothing if the target is not a pool.
    pub fn set_members(&mut self, now: Instant, members: &[ReplicaConfig]) {
        let set_members = |pool: &mut Pool| pool.set_members(now, members);
        if self.capacity.with_pool(set_members).is_some() {
            self.reclassify(now);
        }
    }

    /// Applies an observation of a replica, such as its metrics or a failed probe. Call
    /// [`Scheduler::next`] and [`Scheduler::next_stranded`] afterwards.
    pub fn observe(&mut self, now: Instant, id: ReplicaId, observation: Observation) {
        match self.capacity.with_pool(|pool| pool.observe(now, id, observation)) {
            Some(true) => self.reclassify(now),
            Some(false) => {
                self.capacity.refresh_and_record(now);
                self.watch_gap(now);
            }
            None => {}
        }
    }

    /// Returns the polls of replicas that are due. Call [`Scheduler::next_stranded`] afterwards,
    /// because a replica that did not answer the last poll in time may be down now.
    ///
    /// Returns no polls if the target is not a pool.
    pub fn poll_requests(&mut self, now: Instant) -> PollRequests {
        let is_busy = self.is_busy();
        let poll_requests = |pool: &mut Pool| {
            if is_busy {
                // No request is sent while calls only wait, but fresh observations are needed.
                pool.placement.wake(now);
            }
            pool.placement.poll_requests(now)
        };
        self.capacity.with_pool(poll_requests).unwrap_or_default()
    }

    /// Returns the state of each replica, or an empty list if the target is not a pool.
    pub fn replicas(&self, now: Instant) -> Vec<ReplicaView> {
        let Some(pool) = self.capacity.upstream.as_pool() else { return Vec::new() };
        let mut views = pool.placement.view(now);
        for view in &mut views {
            let replica = pool.placement.index_of(view.id).and_then(|at| pool.replica(at));
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

    /// Returns a replica for a request that uses no slot. Returns `None` if the target is not a
    /// pool, has no replica, or if all replicas refuse connections.
    pub fn pick_without_slot(&mut self, now: Instant) -> Option<Placed> {
        self.capacity.upstream.as_pool_mut()?.placement.pick_without_slot(now)
    }
}
