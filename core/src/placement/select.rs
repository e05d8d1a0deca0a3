//! Which of the replicas that could take a call it goes to.
//!
//! # The rule
//!
//! 1. Nobody over the [bound](super::load_bound). For a conversation with a key of its own, which cannot by itself make a hot spot, [`AFFINITY_SLACK`] times that: few long prompts are
//!    uneven, and each that is turned away is computed twice.
//! 2. Of those, some are looked at: the one at which most of the prompt is cached, and the first two in the order in which all clients prefer them for its
//!    [key](super::affinity_key), by [rendezvous](super::rendezvous); without a key two by chance, in proportion to their weights. Now and then also one that has just come back and
//!    has no call yet. Cached is what we [sent](super::prefix_cache) there; and the first in that order, the key's owner, is credited with the prompt as far as the traffic is
//!    others': what they sent where is not known otherwise. What has to go elsewhere goes to the second, where others' has gone too.
//! 3. Of these the least cost: [the work before it](super::load), which its first token waits for, and what of its prompt would have to be computed there, [`UNCACHED_FACTOR`] times
//!    more, for those behind it wait for that and what they had cached makes room for it; by how [fast](super::speed) and how heavy the replica is. Among equals, chance.
//!
//! # Why
//!
//! Two and not the best of all, because others decide by the same poll at the same time: the best of all would be everybody's. For the same reason only one of
//! those that hold as much: a prompt that begins as all others do is cached everywhere. Only where nearly all calls are our own, and so nothing that we see is old, all
//! are looked at.

use std::time::Instant;

use super::load::Others;
use super::load_bound;
use super::prefix_cache::EngineCache;
use super::rendezvous;
use super::speed::Pooled;
use super::types::{Wants, Work};
use super::{Placement, ReplicaSet};

/// What we sent to another than the owner of its key counts so much less, as far as the traffic is others': they send no more of it there, and it is displaced sooner.
const NON_OWNER_DISCOUNT: f64 = 0.5;
/// So many of the first that all clients prefer for a key are looked at.
const PREFERRED: usize = 2;
/// What of a prompt has to be computed counts so many times more than what stands before it.
const UNCACHED_FACTOR: f64 = 2.0;
/// What a call that is being answered adds to the work before another, in prompt tokens.
const DECODE_COST: f64 = 64.0;
/// What any call costs beside its prompt, in the same.
const CALL_COST: f64 = 256.0;
/// How far beyond the bound a conversation may go where it is known.
const AFFINITY_SLACK: f64 = 1.5;
/// Where others have less than this share of the calls, what we see is as it is.
const NEGLIGIBLE_SHARE: f64 = 0.1;

/// A newcomer is looked at by at least this share of the calls.
const NEW_REPLICA_SHARE: f64 = 0.02;

/// A replica that could take the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) at: usize,
    /// Calls there, our own and others'.
    calls: f64,
    /// Its part of all that the pool can do.
    share: f64,
    /// The same of one that is not starting slowly: how many it gets is slow start's, and not how soon it would answer.
    weight: f64,
    /// Work that stands before a new call, in tokens of prompt.
    ahead: f64,
    /// How many times as long as others it takes for the same.
    slowness: f64,
    /// Tokens of the prompt that are taken to be cached there.
    pub(super) cached: u64,
}

impl Candidate {
    fn cost(&self, work: Work) -> f64 {
        let own = work.input.saturating_sub(self.cached) as f64 * (1.0 + UNCACHED_FACTOR) + CALL_COST;
        (self.ahead + own) * self.slowness / self.weight
    }

    /// Whether it may have one more, if so many are its part of all, that one included.
    fn is_within(&self, part: f64, slack: f64) -> bool {
        self.calls + 1.0 <= load_bound::most(part) * slack || self.calls <= part
    }

    /// What the call's first token waits for there, by what is known of its own speed.
    pub(super) fn work(&self, work: Work) -> f64 {
        self.ahead + work.input.saturating_sub(self.cached) as f64 + CALL_COST
    }
}

impl Placement {
    /// The replicas of a set as they stand to a call, with what is cached there.
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

    /// What of the prompt is cached at each of them, by what we sent.
    fn credit_cached(&self, wants: &Wants, work: Work, candidates: &mut [Candidate]) {
        let affinity = &wants.affinity;
        let cache = |candidate: &Candidate| self.cache(candidate.at).map(|cache| (cache, 0));
        let mut caches: Vec<(EngineCache, u64)> = candidates.iter().filter_map(cache).collect();
        let of = |index: usize| affinity.tokens(index, work.input);
        self.prefix_cache.known(&affinity.beginnings, of, &mut caches);
        for (candidate, (cache, known)) in candidates.iter_mut().zip(caches) {
            // What a session sent says nothing of a prompt that begins otherwise.
            let named = affinity.session.filter(|_| affinity.beginnings.is_empty());
            let session = named.map_or(0, |session| self.prefix_cache.session(session, &cache));
            candidate.cached = known.max(session).min(work.input);
        }
    }

    /// What a replica is taken to have of others', of which that is not known: as much as those of which it is. None where nobody's is known.
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

    /// Of `open`, all of which could take the call now, the one that it goes to; `None`: there is none. The rule is the module's documentation.
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

    /// As far as the traffic is others', the owner of its key is credited with the prompt, and the rest with less than what we sent there.
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

    /// See the module's documentation.
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
        // By chance alone it would wait for long for its first call; and if all looked at it at once it would have too many.
        if self.rng.f64() < (1.0 - self.foreign).max(NEW_REPLICA_SHARE) {
            looked.extend(
                candidates
                    .iter()
                    .filter(|candidate| candidate.share < candidate.weight && candidate.calls < 1.0),
            );
        }
        looked
    }

    /// What of a prompt is cached wherever it goes, as far as that is others' doing: as much as the caches hold of what comes.
    pub(super) fn cached_by_others(&self, work: Work) -> u64 {
        let hits = || self.replicas.iter().flatten().filter_map(|replica| replica.load.hits());
        let mean = hits().sum::<f64>() / hits().count().max(1) as f64;
        (work.input as f64 * mean * self.foreign) as u64
    }

    /// Their indices, in the order in which every client would prefer them for that key.
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

    /// Two by chance, in proportion to what they can take; both, of two.
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
        // Of sums that round there may be something left.
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

/// Takes out those that would have more calls than `slack` times the bound lets them. Never all: one has no more than its part now.
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
