//! The members of a pool: which replicas join and leave, and which calls they serve.

use std::sync::Arc;
use std::time::Instant;
use tidegate_config::ReplicaConfig;

use super::replica::Replica;
use super::types::{ReplicaId, Wants};
use super::{MOST, Placement, ReplicaSet};

impl Placement {
    /// Sets the pool's replicas, and returns the indices of those that joined.
    ///
    /// A known URL keeps its replica, with a new weight. A replica that is no longer listed drains:
    /// it gets no more calls and leaves with its last one. If it is listed again before that, it
    /// continues. Of more than [`MOST`] replicas, draining ones included, the last do not join; see
    /// [`Placement::take_pending`].
    pub fn set_members(&mut self, now: Instant, members: &[ReplicaConfig]) -> ReplicaSet {
        for slot in &mut self.replicas {
            let Some(replica) = slot else { continue };
            replica.draining = !members.iter().any(|member| member.url == replica.member.url);
            if replica.draining && replica.load.calls() == 0 {
                *slot = None;
            }
        }
        // A replica that joins running ones starts slowly. The first ones start at once.
        let starts = self.replicas.iter().flatten().any(|replica| replica.health.last_alive().is_some());
        let mut joined = ReplicaSet::NONE;
        let mut pending = false;
        for member in members {
            match self.replicas.iter_mut().flatten().find(|known| known.member.url == member.url) {
                Some(known) => known.member = member.clone(),
                None => {
                    let Some(at) = self.free() else {
                        pending = true;
                        continue;
                    };
                    self.ids += 1;
                    joined.insert(at);
                    let replica = Replica::new(ReplicaId(self.ids), member.clone(), now, starts);
                    if let Some(slot) = self.replicas.get_mut(at) {
                        *slot = Some(replica);
                    }
                }
            }
        }
        for replica in self.replicas.iter_mut().flatten() {
            if let Some(tokens) = replica.member.kv_tokens {
                replica.load.holds(tokens);
            }
        }
        self.pending = pending.then(|| members.into());
        self.settle(now);
        joined
    }

    /// Returns all members if some have no index and one is free now. To be passed to
    /// [`Placement::set_members`]. Call after a replica has left.
    pub fn take_pending(&mut self) -> Option<Arc<[ReplicaConfig]>> {
        let free = self.replicas.len() < MOST || self.replicas.iter().any(Option::is_none);
        self.pending.take_if(|_| free)
    }

    /// Returns a free index.
    fn free(&mut self) -> Option<usize> {
        let free = self.replicas.iter().position(Option::is_none);
        free.or_else(|| {
            let next = self.replicas.len();
            (next < MOST).then(|| self.replicas.push(None))?;
            Some(next)
        })
    }

    /// Returns the number of replicas that are not draining.
    pub(super) fn members(&self) -> usize {
        self.replicas.iter().flatten().filter(|replica| !replica.draining).count()
    }

    /// Returns the replicas that could take a call, healthy or not.
    ///
    /// They are not draining, are known to serve its model, have a context length for its input as
    /// far as is known, and are not among those that the call avoids. A condition that no replica
    /// satisfies is dropped, because the replica itself is the source of truth: first the replicas
    /// to avoid, then the length, then the model (replicas whose models are unknown come before
    /// those known not to serve it).
    pub fn serving(&self, wants: Option<&Wants>, least_input: u64) -> ReplicaSet {
        let all = self.present(|replica| !replica.draining);
        let model = wants.and_then(|wants| wants.model.as_deref());
        let serving = match model {
            Some(model) => {
                let known = self.present(|replica| replica.serves(model) == Some(true)).and(all);
                let unknown = self.present(|replica| replica.serves(model).is_none()).and(all);
                or_else(known, unknown)
            }
            None => all,
        };
        let serving = or_else(serving, all);
        let long = self.present(|replica| replica.takes(model, least_input)).and(serving);
        let long = or_else(long, serving);
        let avoided = wants.map_or(&[][..], |wants| &wants.avoid);
        let avoided: ReplicaSet = avoided.iter().filter_map(|id| self.index_of(*id)).collect();
        or_else(long.less(avoided), long)
    }

    /// Returns `true` if all replicas are known not to serve the model.
    pub(super) fn lacks(&self, model: &str) -> bool {
        let mut serving = self.replicas.iter().flatten().filter(|replica| !replica.draining);
        serving.all(|replica| replica.serves(model) == Some(false))
    }
}

fn or_else(some: ReplicaSet, others: ReplicaSet) -> ReplicaSet {
    if some.is_empty() { others } else { some }
}
