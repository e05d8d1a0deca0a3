//! Who is in the pool: joins, leaves, and what each of them serves.

use std::sync::Arc;
use std::time::Instant;

use super::replica::Replica;
use super::types::{Member, ReplicaId, Wants};
use super::{MOST, Placement, ReplicaSet};

impl Placement {
    /// From now on these are the replicas. Who is new joins, whose URL is known already stays what it is (its weight may change), and who is not among them
    /// drains: it gets no more calls, and leaves with its last one. One that comes back before that goes on as what it is. Returns the places of those that joined; of
    /// more than [`MOST`], those that drain included, the last do not: see [`Placement::take_pending`].
    pub fn set_members(&mut self, now: Instant, members: &[Member]) -> ReplicaSet {
        for slot in &mut self.replicas {
            let Some(replica) = slot else { continue };
            replica.draining = !members.iter().any(|member| member.url == replica.member.url);
            if replica.draining && replica.load.calls() == 0 {
                *slot = None;
            }
        }
        // Beside others that run, a new one is brought in slowly; the first all at once.
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

    /// All members, where some of them had no place and there is one now: to be told again, by [`Placement::set_members`]. To be asked where one left.
    pub fn take_pending(&mut self) -> Option<Arc<[Member]>> {
        let free = self.replicas.len() < MOST || self.replicas.iter().any(Option::is_none);
        self.pending.take_if(|_| free)
    }

    /// A place that nobody has.
    fn free(&mut self) -> Option<usize> {
        let free = self.replicas.iter().position(Option::is_none);
        free.or_else(|| {
            let next = self.replicas.len();
            (next < MOST).then(|| self.replicas.push(None))?;
            Some(next)
        })
    }

    /// How many do not drain.
    pub(super) fn members(&self) -> usize {
        self.replicas.iter().flatten().filter(|replica| !replica.draining).count()
    }

    /// Those that could take such a call, well or not: they do not drain, are known to serve its model, take its length, as far as is known, and are none that it avoids. Where
    /// that leaves nobody, those that it avoids; where nobody is known to serve its model, those of which it is not known, and where there are none, all: the replica is
    /// the source of truth. The same where all are too short.
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

    /// Whether no replica is known to serve the model, and some are known not to.
    pub(super) fn lacks(&self, model: &str) -> bool {
        let mut serving = self.replicas.iter().flatten().filter(|replica| !replica.draining);
        serving.all(|replica| replica.serves(model) == Some(false))
    }
}

fn or_else(some: ReplicaSet, others: ReplicaSet) -> ReplicaSet {
    if some.is_empty() { others } else { some }
}
