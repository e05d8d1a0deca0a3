//! Replica selection: chooses the replica that a call is sent to.
//!
//! # Algorithm
//!
//! 1. Exclude replicas whose load exceeds the [load bound](super::load_bound). A conversation with
//!    its own key may exceed it by [`AFFINITY_SLACK`]: it cannot overload a replica by itself, few
//!    long prompts are uneven, and moving it would compute its whole prompt again.
//! 2. Sample candidates: the replica with the longest cached prefix, and the first two in the
//!    [rendezvous](super::rendezvous) order of the [key](super::affinity_key). Without a key, draw
//!    two in proportion to their weights. Sometimes add a replica that has just returned and has no
//!    calls. Cached prefixes are those that [this client sent](super::prefix_cache). The owner of
//!    the key is credited with the prompt in proportion to other clients' share of the traffic,
//!    because what they sent is not known otherwise.
//! 3. Choose the candidate with the lowest cost: the [work](super::load) before the call, plus
//!    uncached prompt tokens times (1 + [`UNCACHED_FACTOR`]), divided by the replica's
//!    [speed](super::speed) and weight. The factor is above one because later calls wait for those
//!    tokens too, and other prefixes are evicted for them. Ties are broken at random.
//!
//! # Rationale
//!
//! Sampling prevents herding: independent clients see the same metrics at the same time and would
//! all choose the same best replica. For the same reason, only one of the replicas with the longest
//! cached prefix is sampled: a prefix that all prompts share is cached everywhere. If nearly all
//! calls are this client's own, its view is not stale, and all replicas are candidates.

use std::time::Instant;

use super::load::Others;
use super::load_bound;
use super::prefix_cache::EngineCache;
use super::rendezvous;
use super::speed::Pooled;
use super::types::{Wants, Work};
use super::{Placement, ReplicaSet};

/// The discount on the cached prefix of replicas that do not own the key, in proportion to other
/// clients' share of the traffic. They send the prefix to its owner only, so a copy elsewhere is
/// evicted earlier.
const NON_OWNER_DISCOUNT: f64 = 0.5;
/// How many replicas are sampled from the rendezvous order of a key.
const PREFERRED: usize = 2;
/// The additional weight of uncached prompt tokens.
const UNCACHED_FACTOR: f64 = 2.0;
/// The work that a call being answered adds, in prompt tokens.
const DECODE_COST: f64 = 64.0;
/// The fixed work of a call, in prompt tokens.
const CALL_COST: f64 = 256.0;
/// The factor by which a conversation with its own key may exceed the load bound.
const AFFINITY_SLACK: f64 = 1.5;
/// The share of other clients' calls below which the own view counts as current.
const NEGLIGIBLE_SHARE: f64 = 0.1;

/// The minimum share of calls for which a new replica is sampled.
const NEW_REPLICA_SHARE: f64 = 0.02;

/// A replica that can take the call, with the inputs of the cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) at: usize,
    /// Calls there, of all clients.
    calls: f64,
    /// The share of the pool's weight in force there.
    share: f64,
    /// The configured weight. Slow start limits how many calls a replica gets, not how fast it
    /// answers.
    weight: f64,
    /// Prompt tokens queued before a new call.
    ahead: f64,
    /// The time for the same work, relative to the pool.
    slowness: f64,
    /// Prompt tokens that are assumed to be cached there.
    pub(super) cached: u64,
}

impl Candidate {
    fn cost(&self, work: Work) -> f64 {
        let own = work.input.saturating_sub(self.cached) as f64 * (1.0 + UNCACHED_FACTOR) + CALL_COST;
        (self.ahead + own) * self.slowness / self.weight
    }

    /// Returns `true` if the replica may take one more call when `part` is its share of all calls,
    /// including the new one.
    fn is_within(&self, part: f64, slack: f64) -> bool {
        self.calls + 1.0 <= load_bound::most(part) * slack || self.calls <= part
    }

    /// Returns the work before the call's first token, in prompt tokens.
    pub(super) fn work(&self, work: Work) -> f64 {
        self.ahead + work.input.saturating_sub(self.cached) as f64 + CALL_COST
    }
}

impl Placement {
    /// Returns the candidates among a set of replicas, with what is cached there.
    pub(super) fn candidates(
        &self,
        now: Instant,
        wants: Option<&Wants>,
        work: Work,
        open: ReplicaSet,
    ) -> Vec<Candidate> {
        let known = |at: usize| Some((at, self.replicas.get(at)?.as_ref()?));
        let pooled = Pooled::of(self.replicas.iter().flatten().map(|replica| replica.load.speed));
        let mean = self.mean_of_others(now, open);
        let candidate = |(at, replica): (usize, &super::replica::Replica)| {
            let load = &replica.load;
            let others = load.others(now, self.poll).unwrap_or(mean);
            Candidate {
                at,
                calls: load.calls() as f64 + others.calls(),
                share: (replica.member.weight * replica.health.share(now, &self.settings)).max(1e-3),
                weight: replica.member.weight.max(1e-3),
                ahead: load.awaiting_tokens as f64
                    + load.awaiting as f64 * CALL_COST
                    + (load.answering as f64 + others.running) * DECODE_COST
                    + others.under_way
                    + others.waiting * self.typical,
                slowness: pooled.map_or(1.0, |pooled| pooled.slowness(now, load.speed)),
                cached: 0,
            }
        };
        let mut candidates: Vec<Candidate> = open.iter().filter_map(known).map(candidate).collect();
        if let Some(wants) = wants {
            self.credit_cached(wants, work, &mut candidates);
        }
        candidates
    }

    /// Sets the cached tokens of each candidate from what this client sent.
    fn credit_cached(&self, wants: &Wants, work: Work, candidates: &mut [Candidate]) {
        let affinity = &wants.affinity;
        let cache = |candidate: &Candidate| self.cache(candidate.at).map(|cache| (cache, 0));
        let mut caches: Vec<(EngineCache, u64)> = candidates.iter().filter_map(cache).collect();
        let of = |index: usize| affinity.tokens(index, work.input);
        self.prefix_cache.known(&affinity.prefixes, of, &mut caches);
        for (candidate, (cache, known)) in candidates.iter_mut().zip(caches) {
            // A session's earlier prompt says nothing about a prompt that starts differently.
            let named = affinity.session.filter(|_| affinity.prefixes.is_empty());
            let session = named.map_or(0, |session| self.prefix_cache.session(session, &cache));
            candidate.cached = known.max(session).min(work.input);
        }
    }

    /// Returns the mean load by other clients over the replicas where it is known; used for the
    /// others.
    fn mean_of_others(&self, now: Instant, open: ReplicaSet) -> Others {
        let known = open.iter().filter_map(|at| self.replicas.get(at)?.as_ref()?.load.others(now, self.poll));
        let (mut sum, mut count) = (Others::default(), 0.0);
        for others in known {
            sum.running += others.running;
            sum.waiting += others.waiting;
            sum.under_way += others.under_way;
            count += 1.0;
        }
        if count == 0.0 {
            return sum;
        }
        Others {
            running: sum.running / count,
            waiting: sum.waiting / count,
            under_way: sum.under_way / count,
        }
    }

    /// Chooses a replica among `open`, all of which can take the call now. Returns `None` if the
    /// set is empty. The module describes the algorithm.
    pub fn choose(
        &mut self,
        now: Instant,
        wants: Option<&Wants>,
        work: Work,
        open: ReplicaSet,
    ) -> Option<usize> {
        let mut candidates = self.candidates(now, wants, work, open);
        let key = wants.and_then(|wants| self.counts.key(&wants.affinity, self.members()));
        within_bound(&mut candidates, if key.is_some() { AFFINITY_SLACK } else { 1.0 });
        let order = key.map(|key| self.order(key, &candidates)).unwrap_or_default();
        self.credit_owner(work, &order, &mut candidates);
        if self.foreign >= NEGLIGIBLE_SHARE
            || candidates.iter().any(|candidate| !self.is_seen(now, candidate.at))
        {
            candidates = self.sample(&candidates, &order);
        }
        self.cheapest(&candidates, work).map(|candidate| candidate.at)
    }

    /// Credits the owner of the key with the prompt in proportion to other clients' traffic, and
    /// discounts the others.
    fn credit_owner(&self, work: Work, order: &[usize], candidates: &mut [Candidate]) {
        let Some(first) = order.first() else { return };
        for (index, candidate) in candidates.iter_mut().enumerate() {
            candidate.cached = if index == *first {
                candidate.cached.max((work.input as f64 * self.foreign) as u64)
            } else {
                (candidate.cached as f64 * (1.0 - NON_OWNER_DISCOUNT * self.foreign)) as u64
            };
        }
    }

    /// Returns the sampled candidates (step 2 of the algorithm).
    fn sample(&mut self, candidates: &[Candidate], order: &[usize]) -> Vec<Candidate> {
        let most = candidates.iter().map(|candidate| candidate.cached).max().filter(|most| *most > 0);
        let best: Vec<Candidate> =
            candidates.iter().filter(|candidate| Some(candidate.cached) == most).copied().collect();
        let mut looked: Vec<Candidate> = self.rng.choice(best).into_iter().collect();
        let first = order.iter().take(PREFERRED);
        looked.extend(first.filter_map(|index| candidates.get(*index)));
        if order.is_empty() {
            looked.extend(self.draw_two(candidates));
        }
        // Otherwise a new replica could wait long for its first call. If all clients sampled it at
        // once, it would get too many.
        if self.rng.f64() < (1.0 - self.foreign).max(NEW_REPLICA_SHARE) {
            looked.extend(
                candidates
                    .iter()
                    .filter(|candidate| candidate.share < candidate.weight && candidate.calls < 1.0),
            );
        }
        looked
    }

    /// Returns the prompt tokens expected to be cached anywhere because of other clients' traffic.
    pub(super) fn cached_by_others(&self, work: Work) -> u64 {
        let hits = || self.replicas.iter().flatten().filter_map(|replica| replica.load.hits());
        let mean = hits().sum::<f64>() / hits().count().max(1) as f64;
        (work.input as f64 * mean * self.foreign) as u64
    }

    /// Returns the candidates' positions in the rendezvous order of a key.
    fn order(&self, key: u64, candidates: &[Candidate]) -> Vec<usize> {
        let draw = |candidate: &Candidate| {
            let replica = self.replicas.get(candidate.at)?.as_ref()?;
            Some(rendezvous::draw(key, replica.name, replica.member.weight))
        };
        let mut draws: Vec<(usize, f64)> = candidates
            .iter()
            .enumerate()
            .filter_map(|(index, candidate)| Some((index, draw(candidate)?)))
            .collect();
        draws.sort_by(|one, other| other.1.total_cmp(&one.1));
        draws.into_iter().map(|(index, _)| index).collect()
    }

    /// Draws two candidates in proportion to their shares.
    fn draw_two(&mut self, candidates: &[Candidate]) -> impl Iterator<Item = Candidate> + use<> {
        let first = self.draw_one(candidates, None);
        let second = self.draw_one(candidates, first.map(|first| first.at));
        first.into_iter().chain(second)
    }

    fn draw_one(&mut self, candidates: &[Candidate], but: Option<usize>) -> Option<Candidate> {
        let others = || candidates.iter().filter(|candidate| Some(candidate.at) != but);
        let mut left = self.rng.f64() * others().map(|candidate| candidate.share).sum::<f64>();
        let drawn = others().find(|candidate| {
            left -= candidate.share;
            left < 0.0
        });
        // Rounding may leave a remainder.
        drawn.or_else(|| others().next_back()).copied()
    }

    fn cheapest(&mut self, looked: &[Candidate], work: Work) -> Option<Candidate> {
        let costs = || looked.iter().map(|candidate| candidate.cost(work));
        let least = costs().fold(f64::INFINITY, f64::min);
        let equals = looked.iter().filter(|candidate| candidate.cost(work) <= least);
        let at = self.rng.usize(..equals.clone().count().max(1));
        equals.copied().nth(at)
    }
}

/// Removes the candidates above `slack` times the load bound. At least one remains.
fn within_bound(candidates: &mut Vec<Candidate>, slack: f64) {
    let calls = candidates.iter().map(|candidate| candidate.calls).sum::<f64>() + 1.0;
    let shares = candidates.iter().map(|candidate| candidate.share).sum::<f64>();
    candidates.retain(|candidate| candidate.is_within(calls * candidate.share / shares, slack));
}

#[cfg(test)]
pub(super) fn is_within(candidates: &[Candidate], at: usize) -> bool {
    let mut within = candidates.to_vec();
    within_bound(&mut within, AFFINITY_SLACK);
    within.iter().any(|candidate| candidate.at == at)
}
