//! Replica selection: chooses the replica that a call is sent to.
//!
//! # Algorithm
//!
//! 1. Exclude replicas whose load exceeds the [load bound](super::load_bound). A conversation with
//!    its own key may exceed it by [`AFFINITY_SLACK`]: it cannot overload a replica by itself, the
//!    load by a few long prompts is uneven anyway, and moving it would compute its whole prompt
//!    again.
//! 2. Sample candidates: the replica with the longest cached prefix, and the first two in the
//!    [rendezvous] order of the [key](super::affinity_key). Without a key, draw two in proportion
//!    to their weights. Sometimes add a replica that is in slow start and has no calls. Cached
//!    prefixes are those that [this client or a partner sent](super::prefix_cache). Because it is
//!    not known what other clients sent, the owner of the key (the first in the order) is assumed
//!    to hold a part of the prompt that equals their share of the traffic.
//! 3. Choose the candidate with the lowest cost: the [work](super::load_estimate) before the call,
//!    plus uncached prompt tokens times more than one (see [`UNCACHED_FACTOR`]), divided by the
//!    replica's [speed](super::replica_speed) and weight. The factor is above one because later
//!    calls wait for those tokens too, and other prefixes are evicted for them. Ties are broken at
//!    random.
//!
//! # Rationale
//!
//! Sampling prevents herding: independent clients see the same metrics at the same time and would
//! all choose the same best replica. For the same reason, only one of the replicas with the longest
//! cached prefix is sampled: a prefix that all prompts share is cached everywhere. If nearly all
//! calls are this client's own or its [partners'](super::partners), the counts are exact, and all
//! replicas are compared, unless many partners call at the same moment.

use std::time::Instant;

use super::{Placement, Replica, ReplicaSet, Wants, Work, load_bound, rendezvous};
use super::{load_estimate::Others, replica_speed::PoolSpeed};

/// Fraction by which the cached tokens of replicas that do not own the key are discounted if all
/// traffic is that of other clients. The discount is proportional to other clients' share of the
/// traffic.
///
/// Other clients send the prefix to its owner only, so a copy elsewhere is evicted earlier.
const NON_OWNER_DISCOUNT: f64 = 0.5;
/// Number of replicas sampled from the start of the rendezvous order of a key.
const PREFERRED: usize = 2;
/// Additional cost of an uncached prompt token, in prompt tokens.
const UNCACHED_FACTOR: ByTraffic = ByTraffic { own: 0.75, others: 2.0 };
/// The least value of [`UNCACHED_FACTOR`] if processes share the pool. With 0.75, prefix hits were
/// 0.88 of an oracle's at a high load (experiment `pool`, seeds 1 to 5).
const SHARED_UNCACHED_FACTOR: f64 = 1.25;
/// Work that a call past its first token adds at a replica, in prompt tokens. It is more than the
/// call adds to the next step, because the call keeps its slot until it ends.
const DECODE_COST: ByTraffic = ByTraffic { own: 128.0, others: 64.0 };
/// Fixed work of each call before its first token, in prompt tokens.
const CALL_COST: f64 = 256.0;
/// Factor by which calls with an affinity key may exceed the load bound.
const AFFINITY_SLACK: f64 = 1.5;
/// Share of other clients' calls, from 0 to 1, below which no candidates are sampled: all replicas
/// are compared.
const NEGLIGIBLE_SHARE: f64 = 0.1;
/// Minimum probability with which replicas that are in slow start and have no calls are added to
/// the sample.
const NEW_REPLICA_SHARE: f64 = 0.02;

/// A value that depends on whose traffic the pool serves. The load that other clients cause is
/// known less exactly than what is cached, so load counts less if others cause much of it.
#[derive(Clone, Copy, Debug)]
struct ByTraffic {
    /// The value if all traffic is this client's own.
    own: f64,
    /// The value if half of the traffic or more is that of other clients.
    others: f64,
}

impl ByTraffic {
    /// Returns the value for a share of other clients' traffic, from 0 to 1.
    fn at(self, others_share: f64) -> f64 {
        self.own + (self.others - self.own) * (2.0 * others_share).min(1.0)
    }
}

/// A replica that can take the call, with the inputs of the cost estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The replica's index.
    pub(super) index: usize,
    /// Number of calls at the replica, of all clients.
    calls: f64,
    /// The current weight: a part of the configured one during slow start and trials.
    share: f64,
    /// The configured weight. Slow start limits how many calls a replica gets, not how fast it
    /// answers.
    weight: f64,
    /// Work queued before a new call, in prompt tokens.
    queued_work: f64,
    /// The replica's time for the same work, as a multiple of the pool's mean: above 1 for slow
    /// replicas.
    slowness: f64,
    /// Number of the call's prompt tokens that are assumed to be cached at the replica.
    pub(super) cached: u64,
}

impl Candidate {
    /// Returns the estimated cost of sending the call to the replica (step 3 of the algorithm),
    /// where an uncached prompt token costs one more than `uncached_factor`. The unit has no
    /// meaning: costs are only compared with each other.
    fn cost(&self, work: Work, uncached_factor: f64) -> f64 {
        let own = work.input.saturating_sub(self.cached) as f64 * (1.0 + uncached_factor) + CALL_COST;
        (self.queued_work + own) * self.slowness / self.weight
    }

    /// Returns the work that the replica does before the call's first token, in prompt tokens: the
    /// queued work plus the call's own.
    pub(super) fn work(&self, work: Work) -> f64 {
        self.queued_work + work.input.saturating_sub(self.cached) as f64 + CALL_COST
    }
}

impl Placement {
    /// Returns a candidate for each replica in `open`, in ascending order of their indices.
    /// `cached` is set from the prefixes and sessions that this client has sent to each replica.
    pub(super) fn candidates(
        &self,
        now: Instant,
        wants: Option<&Wants>,
        work: Work,
        open: ReplicaSet,
    ) -> Vec<Candidate> {
        let pool = PoolSpeed::from_replicas(self.known().map(|(_, replica)| replica.load.speed));
        let mean = self.mean_of_others(now, open);
        let decode_cost = DECODE_COST.at(self.others_share);
        let candidate = |(index, replica): (usize, &Replica)| {
            let load = &replica.load;
            let others = load.others(now).unwrap_or(mean);
            Candidate {
                index,
                calls: load.calls() as f64 + others.calls(),
                share: (replica.member.weight * replica.health.share(now)).max(1e-3),
                weight: replica.member.weight.max(1e-3),
                queued_work: load.awaiting_tokens as f64
                    + load.awaiting as f64 * CALL_COST
                    + (load.answering as f64 + others.running) * decode_cost
                    + others.under_way
                    + others.waiting * self.mean_uncached,
                slowness: pool.map_or(1.0, |pool| pool.slowness(now, load.speed)),
                cached: 0,
            }
        };
        let open = || self.known().filter(move |(index, _)| open.contains(*index));
        let mut candidates: Vec<Candidate> = open().map(candidate).collect();
        let Some(Wants { affinity, .. }) = wants else { return candidates };
        let mut caches: Vec<_> = open().map(|(_, replica)| (replica.load.cache, 0)).collect();
        let tokens = |index| affinity.tokens(index, work.input);
        self.prefix_cache.find_cached(&affinity.prefixes, tokens, &mut caches);
        // A session's earlier prompt says nothing about a prompt that starts differently.
        let session = affinity.session.filter(|_| affinity.prefixes.is_empty());
        for (candidate, (cache, cached)) in candidates.iter_mut().zip(caches) {
            let in_session = session.map_or(0, |session| self.prefix_cache.session_tokens(session, &cache));
            candidate.cached = cached.max(in_session).min(work.input);
        }
        candidates
    }

    /// Returns the mean of other clients' load over those `open` replicas at which it is known. If
    /// it is known for none, returns a load of zero. The mean is assumed for the other replicas.
    fn mean_of_others(&self, now: Instant, open: ReplicaSet) -> Others {
        let open = self.known().filter(|(index, _)| open.contains(*index));
        let known: Vec<Others> = open.filter_map(|(_, replica)| replica.load.others(now)).collect();
        let mean = |part: fn(&Others) -> f64| known.iter().map(part).sum::<f64>() / known.len().max(1) as f64;
        Others {
            running: mean(|others| others.running),
            waiting: mean(|others| others.waiting),
            under_way: mean(|others| others.under_way),
        }
    }

    /// Chooses a replica for a call among `open`, usually the intersection of
    /// [`Placement::eligible`] and [`Placement::serving`]. Returns its index, or `None` if `open`
    /// contains no replica.
    ///
    /// `wants` is `None` if nothing is known about the call but its size, `work`. The documentation
    /// of the source file describes the algorithm. Report the call to [`Placement::on_sent`].
    pub fn choose(
        &mut self,
        now: Instant,
        wants: Option<&Wants>,
        work: Work,
        open: ReplicaSet,
    ) -> Option<usize> {
        let mut candidates = self.candidates(now, wants, work, open);
        let key = wants.and_then(|wants| self.counts.key(&wants.affinity, self.members().len()));
        within_bound(&mut candidates, if key.is_some() { AFFINITY_SLACK } else { 1.0 });
        let order = key.map(|key| self.order(key, &candidates)).unwrap_or_default();
        self.credit_owner(work, &order, &mut candidates);
        let others = |candidate: &Candidate| self.replica(candidate.index)?.load.others(now);
        let is_unknown = candidates.iter().any(|candidate| others(candidate).is_none());
        let members = self.members().len();
        let is_concurrent =
            self.partners.as_ref().is_some_and(|partners| partners.has_concurrent_calls(members));
        if self.others_share >= NEGLIGIBLE_SHARE || is_unknown || is_concurrent {
            candidates = self.sample(&candidates, &order);
        }
        self.cheapest(&candidates, work).map(|candidate| candidate.index)
    }

    /// Raises the cached tokens of the key's owner, the first of `order`, to at least the part of
    /// the prompt that equals other clients' share of the traffic. Lowers the cached tokens of the
    /// other candidates. Does nothing if `order` is empty, because the call has no key.
    fn credit_owner(&self, work: Work, order: &[usize], candidates: &mut [Candidate]) {
        let Some(owner) = order.first() else { return };
        for (position, candidate) in candidates.iter_mut().enumerate() {
            candidate.cached = if position == *owner {
                candidate.cached.max((work.input as f64 * self.others_share) as u64)
            } else {
                (candidate.cached as f64 * (1.0 - NON_OWNER_DISCOUNT * self.others_share)) as u64
            };
        }
    }

    /// Returns the sampled candidates (step 2 of the algorithm), in any order. A candidate may
    /// occur twice. `order` is the rendezvous order of the key, as positions in `candidates`, or
    /// empty if the call has no key.
    fn sample(&mut self, candidates: &[Candidate], order: &[usize]) -> Vec<Candidate> {
        let most = candidates.iter().map(|candidate| candidate.cached).max().filter(|most| *most > 0);
        let best = candidates.iter().filter(|candidate| Some(candidate.cached) == most).copied();
        let mut sampled: Vec<Candidate> = self.rng.choice(best.collect::<Vec<_>>()).into_iter().collect();
        sampled.extend(order.iter().take(PREFERRED).filter_map(|index| candidates.get(*index)));
        if order.is_empty() {
            let first = self.draw(candidates, None);
            let second = self.draw(candidates, first.map(|first| first.index));
            sampled.extend(first.into_iter().chain(second));
        }
        // Otherwise a new replica could wait long for its first call. If all clients sampled it at
        // once, it would get too many.
        if self.rng.f64() < (1.0 - self.others_share).max(NEW_REPLICA_SHARE) {
            let is_new = |candidate: &&Candidate| candidate.share < candidate.weight && candidate.calls < 1.0;
            sampled.extend(candidates.iter().filter(is_new));
        }
        sampled
    }

    /// Returns how many of a call's prompt tokens are expected to be cached at any replica because
    /// of other clients' traffic: the pool's mean hit rate times other clients' share.
    pub(super) fn cached_by_others(&self, work: Work) -> u64 {
        let hit_rates = || self.known().filter_map(|(_, replica)| replica.load.backlog.hit_rate());
        let mean = hit_rates().sum::<f64>() / hit_rates().count().max(1) as f64;
        (work.input as f64 * mean * self.others_share) as u64
    }

    /// Returns the candidates in the rendezvous order of a key, as positions in `candidates`. The
    /// first one owns the key.
    fn order(&self, key: u64, candidates: &[Candidate]) -> Vec<usize> {
        let draw = |(position, candidate): (usize, &Candidate)| {
            let replica = self.replica(candidate.index)?;
            Some((position, rendezvous::draw(key, replica.name, replica.member.weight)))
        };
        let mut draws: Vec<(usize, f64)> = candidates.iter().enumerate().filter_map(draw).collect();
        draws.sort_by(|one, other| other.1.total_cmp(&one.1));
        draws.into_iter().map(|(position, _)| position).collect()
    }

    /// Draws a candidate with a probability proportional to its current weight, but not the replica
    /// at the index `except`. Returns `None` if there is no other candidate.
    fn draw(&mut self, candidates: &[Candidate], except: Option<usize>) -> Option<Candidate> {
        let others = || candidates.iter().filter(|candidate| Some(candidate.index) != except);
        let mut left = self.rng.f64() * others().map(|candidate| candidate.share).sum::<f64>();
        let drawn = others().find(|candidate| {
            left -= candidate.share;
            left < 0.0
        });
        // Rounding may leave a remainder.
        drawn.or_else(|| others().next_back()).copied()
    }

    /// Returns the candidate with the lowest cost, one of them at random if several have it, or
    /// `None` if there is no candidate.
    fn cheapest(&mut self, candidates: &[Candidate], work: Work) -> Option<Candidate> {
        let uncached_factor = UNCACHED_FACTOR.at(self.others_share);
        let is_shared = self.partners.as_ref().is_some_and(|partners| partners.has_partners());
        let uncached_factor =
            if is_shared { uncached_factor.max(SHARED_UNCACHED_FACTOR) } else { uncached_factor };
        let cost = |candidate: &Candidate| candidate.cost(work, uncached_factor);
        let least = candidates.iter().map(cost).fold(f64::INFINITY, f64::min);
        let equals = candidates.iter().filter(|candidate| cost(candidate) <= least);
        let drawn = self.rng.usize(..equals.clone().count().max(1));
        equals.copied().nth(drawn)
    }
}

/// Removes the candidates that would exceed `slack` times the load bound with one more call, except
/// those that have at most their part of all calls by weight. If there are candidates, at least one
/// remains.
fn within_bound(candidates: &mut Vec<Candidate>, slack: f64) {
    let calls = candidates.iter().map(|candidate| candidate.calls).sum::<f64>() + 1.0;
    let shares = candidates.iter().map(|candidate| candidate.share).sum::<f64>();
    candidates.retain(|candidate| {
        let part = calls * candidate.share / shares;
        candidate.calls + 1.0 <= load_bound::max_calls(part) * slack || candidate.calls <= part
    });
}

#[cfg(test)]
pub(super) fn is_within(candidates: &[Candidate], index: usize) -> bool {
    let mut within = candidates.to_vec();
    within_bound(&mut within, AFFINITY_SLACK);
    within.iter().any(|candidate| candidate.index == index)
}
