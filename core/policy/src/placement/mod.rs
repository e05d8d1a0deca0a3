//! Replica selection for pools: which replica a call is sent to, which replicas are eligible, and
//! what to poll from them.
//!
//! The policy is pure: `now`, calls and observations are arguments, and randomness comes from a
//! seeded generator.
//!
//! - `select`: the selection rule and its rationale. Its inputs are `load` (work queued before a
//!   call), `speed`, `prefix_cache` (what is cached where), `affinity_key` and `rendezvous` (on
//!   which independent clients agree) and `load_bound`.
//! - `health`: which replicas are eligible, a state machine for each replica. Evidence that may be
//!   wrong (failing calls, silence) ejects at most half of the pool; the least bad replicas stay.
//!   Replicas that refuse connections are always ejected.
//! - `polls`: when to poll what.
//! - `members`: which replicas join and leave, and what they serve.
//!
//! Stale metrics mean unknown, and unknown means neither full nor unhealthy.

mod affinity_key;
mod backlog;
mod health;
mod load;
mod load_bound;
mod members;
mod outcome;
mod polls;
mod prefix_cache;
mod rendezvous;
mod replica;
mod replica_set;
mod select;
mod speed;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_config::ReplicaConfig;

use fastrand::Rng;

use self::affinity_key::Counts;
use self::health::{HealthSettings, HealthState};
use self::polls::PollSchedule;
use self::prefix_cache::{EngineCache, PrefixCache};
use self::replica::Replica;
pub use self::replica_set::{MOST, ReplicaSet};
pub use self::types::{
    Fault, Observation, Placed, PollKind, PollRequest, PollRequests, ReplicaId, Wants, Work,
};
use crate::adaptive::AdaptiveView;
use crate::kv;
use tidegate_config::PoolConfig;
use tidegate_protocol::duration;
pub use tidegate_protocol::request::Affinity;
pub use tidegate_protocol::vllm::{EngineMetrics, Model};

/// The number of calls over which means decay.
const SPAN: f64 = 32.0;

/// The selection policy of one pool. See [the module](self).
#[derive(Clone, Debug)]
pub struct Placement {
    replicas: Vec<Option<Replica>>,
    ids: u64,
    calls: u64,
    rng: Rng,
    polls: PollSchedule,
    settings: HealthSettings,
    /// The interval between load polls, which decides when a load is stale.
    poll: Duration,
    prefix_cache: PrefixCache,
    counts: Counts,
    /// The mean number of prompt tokens of a call that have to be computed.
    typical: f64,
    /// All members, if some have no index yet.
    pending: Option<Arc<[ReplicaConfig]>>,
    /// The mean share of calls that other clients sent. A half until the first poll.
    foreign: f64,
}

/// A call at a replica: what was counted there for it. Must be passed to [`Placement::ended`] once.
#[derive(Debug)]
#[must_use = "what is not ended counts for ever"]
pub struct PlacedCall {
    /// The replica's index.
    pub at: usize,
    /// The replica.
    pub placed: Placed,
    number: u64,
    sent: Instant,
    /// Prompt tokens to be computed for the call, until its first token.
    awaited: Option<u64>,
    /// Whether the call was accepted. An answer that is not streamed has no first token.
    accepted: bool,
    tokens: u64,
    /// The work before the first token, in prompt tokens, including the call's own.
    work: f64,
    /// The prefixes that the call brings to a cache if it runs.
    affinity: Affinity,
    cache: u64,
}

/// The state of a replica for snapshots and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// The replica's identifier.
    pub id: ReplicaId,
    /// The base URL.
    pub url: Arc<str>,
    /// The state: `in`, `suspect`, `down`, `trial` (half open), `starting` (slow start) or
    /// `draining`.
    pub state: &'static str,
    /// Whether calls may go to the replica now. Also `true` for a replica that is down but kept
    /// because half of the pool would be ejected.
    pub is_eligible: bool,
    /// The configured weight.
    pub weight: f64,
    /// The share of the weight in force: below 1 during slow start.
    pub share: f64,
    /// How often the replica was ejected.
    pub ejections: u64,
    /// This client's calls.
    pub requests: usize,
    /// This client's tokens.
    pub tokens: u64,
    /// Calls of other clients at the last poll, unless it is stale.
    pub others: Option<f64>,
    /// See [`EngineMetrics::kv_usage`].
    pub kv_usage: Option<f64>,
    /// The models that the replica is known to serve, or `None` if they are not known.
    pub models: Option<Vec<Arc<str>>>,
    /// Slots and memory, or `None` if they are not tracked.
    pub slots: Option<SlotsView>,
}

/// The slots and the memory of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotsView {
    /// Slots in force: during slow start, a share of them.
    pub limit: usize,
    /// Slots in use.
    pub in_flight: usize,
    /// The adaptive limit, or `None` if the limit is fixed.
    pub adaptive: Option<AdaptiveView>,
    /// Decreases of the limit so far.
    pub cuts: u64,
    /// The memory, if its size is known.
    pub kv: Option<kv::View>,
}

impl Placement {
    /// Creates a pool without replicas. `seed` seeds the random generator.
    pub fn new(config: &PoolConfig, seed: u64) -> Self {
        let probes = config.health.is_some();
        let poll = config.poll.map(|poll| poll.min(duration::MAX));
        Self {
            replicas: Vec::new(),
            ids: 0,
            calls: 0,
            rng: Rng::with_seed(seed),
            polls: PollSchedule { probes, poll, active: None, wanted: None },
            settings: HealthSettings {
                probes,
                down_after: config.down_after,
                slow_start: config.slow_start.unwrap_or_default(),
            },
            poll: poll.unwrap_or(Duration::from_secs(1)),
            prefix_cache: PrefixCache::new(),
            counts: Counts::new(),
            typical: 0.0,
            pending: None,
            foreign: 0.5,
        }
    }

    /// Applies an observation. Observations of replicas that have left are ignored.
    pub fn observe(&mut self, now: Instant, id: ReplicaId, observation: Observation) {
        let Some(replica) = self.index_of(id) else { return };
        let settings = self.settings;
        let Some(replica) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return };
        let (health, polled) = (&mut replica.health, &mut replica.polled);
        match observation {
            Observation::ProbeOk => {
                polled.answered(PollKind::Health);
                health.on_probe_ok(now);
            }
            Observation::ProbeFailed => {
                polled.answered(PollKind::Health);
                health.on_probe_failed(now, &settings);
            }
            Observation::ConnectRefused => {
                polled.answered(PollKind::Health);
                health.on_refused(now);
            }
            Observation::ProbeTimeout => {
                let polled = polled.answered(PollKind::Health).unwrap_or(now);
                health.on_timeout(now, polled, &settings);
            }
            Observation::Metrics(standing) => {
                polled.answered(PollKind::Load);
                health.on_alive(now);
                replica.load.observe(now, &standing);
                if let Some(tokens) = replica.member.kv_tokens {
                    replica.load.holds(tokens);
                }
                let ours = replica.load.calls() as f64;
                let others = replica.load.others(now, self.poll).map_or(0.0, |others| others.calls());
                if ours + others > 0.0 {
                    self.foreign += (others / (ours + others) - self.foreign) / SPAN;
                }
            }
            Observation::MetricsUnreadable => {
                polled.answered(PollKind::Load);
            }
            Observation::Models(models) => {
                polled.answered(PollKind::Models);
                health.on_alive(now);
                // A replica that is still loading reports no models.
                replica.models = Some(models).filter(|models| !models.is_empty());
                if replica.models.is_some() {
                    polled.on_models();
                }
            }
        }
        self.settle(now);
    }

    /// Handles a sign of life. Cheap, and not needed for every byte.
    pub fn on_alive(&mut self, now: Instant, at: usize) {
        let replica = self.replicas.get_mut(at).and_then(Option::as_mut);
        if replica.is_some_and(|replica| replica.health.on_alive(now)) {
            self.settle(now);
        }
    }

    /// Keeps polling active because calls wait.
    pub fn wake(&mut self, now: Instant) {
        self.polls.active = Some(now);
    }

    /// Returns what to poll now. Each request is returned once, and answered by
    /// [`Placement::observe`].
    pub fn poll_requests(&mut self, now: Instant) -> PollRequests {
        self.settle(now);
        self.polls.due(now, self.replicas.iter_mut().flatten(), &mut self.rng)
    }

    /// Returns the replicas that calls may go to now: healthy as far as is known, and not draining.
    pub fn eligible(&mut self, now: Instant) -> ReplicaSet {
        self.settle(now);
        self.present(|replica| replica.is_open(now))
    }

    /// Returns a replica for a request that takes no slot, or `None` if there is none.
    ///
    /// Prefers eligible replicas, then busy ones, then any that does not refuse connections.
    pub fn pick_without_slot(&mut self, now: Instant) -> Option<Placed> {
        let eligible = self.eligible(now);
        let held = |replica: &Replica| !replica.draining && replica.health.is_eligible();
        let open = [eligible, self.present(held), self.present(|replica| !replica.health.is_refusing())];
        let open = open.into_iter().find(|places| !places.is_empty())?;
        let at = self.choose(now, None, Work::default(), open)?;
        Some(self.replicas.get(at)?.as_ref()?.placed.clone())
    }

    /// Returns `true` if the replica is down or has left, so that a silent stream of it will not
    /// continue.
    pub fn is_down(&self, id: ReplicaId) -> bool {
        let replica = self.index_of(id).and_then(|at| self.replicas.get(at)?.as_ref());
        replica.is_none_or(|replica| replica.health.state() == HealthState::Down)
    }

    /// Returns the suspect replicas that stay eligible because more than half of the pool would be
    /// ejected: the least bad ones. Replicas that refuse connections are not counted.
    fn kept(&self) -> ReplicaSet {
        let listens = |replica: &&Replica| !replica.draining && !replica.health.is_refusing();
        let half = self.replicas.iter().flatten().filter(listens).count() / 2;
        let doubted = |replica: &Replica| listens(&replica) && replica.health.is_out();
        let mut doubted: Vec<(usize, &Replica)> =
            self.known().filter(|(_, replica)| doubted(replica)).collect();
        let more = doubted.len().saturating_sub(half);
        doubted.sort_by_key(|(_, replica)| replica.health.badness());
        doubted.into_iter().take(more).map(|(at, _)| at).collect()
    }

    /// Records a call that is sent to a replica.
    pub fn sent(&mut self, now: Instant, at: usize, wants: Option<&Wants>, work: Work) -> Option<PlacedCall> {
        let mut candidate = self.candidates(now, wants, work, ReplicaSet::one(at)).pop()?;
        // It is unknown what other clients sent there, but known how much of the prompts the caches
        // hold.
        candidate.cached = candidate.cached.max(self.cached_by_others(work));
        let members = self.members();
        let lacks = wants.and_then(|wants| wants.model.as_deref()).is_some_and(|model| self.lacks(model));
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        self.polls.active = Some(now);
        self.calls += 1;
        let uncached = work.input.saturating_sub(candidate.cached);
        let tokens = work.input.saturating_add(work.output);
        replica.load.send(uncached, work.output, tokens);
        replica.health.sent(self.calls);
        if lacks {
            self.polls.wanted = Some(now);
        }
        if let Some(wants) = wants {
            let affinity = &wants.affinity;
            self.counts.sent(affinity, members);
            for (index, beginning) in affinity.prefixes.iter().enumerate() {
                let tokens = affinity.tokens(index, work.input);
                self.prefix_cache.put(*beginning, &replica.load.cache, tokens, self.calls);
            }
            if let Some(session) = affinity.session {
                self.prefix_cache.put(session, &replica.load.cache, work.input, self.calls);
            }
        }
        self.typical += (uncached as f64 - self.typical) / if self.calls == 1 { 1.0 } else { SPAN };
        Some(PlacedCall {
            at,
            placed: replica.placed.clone(),
            number: self.calls,
            sent: now,
            awaited: Some(uncached),
            accepted: false,
            tokens,
            work: candidate.work(work),
            affinity: wants.map(|wants| wants.affinity.clone()).unwrap_or_default(),
            cache: replica.load.cache.name,
        })
    }

    /// Records the first token of a call.
    pub fn first_token(&mut self, now: Instant, placed_call: &mut PlacedCall) {
        let Some(replica) = self.of(placed_call) else { return };
        let Some(uncached) = placed_call.awaited.take() else { return };
        replica.load.answers(uncached);
        let took = now.saturating_duration_since(placed_call.sent).mul_f64(replica.member.weight);
        replica.load.speed.learn(now, placed_call.work, took);
        if replica.health.first_token(now, placed_call.sent) {
            self.settle(now);
        }
    }

    /// Records the end of a call. Returns the index of its replica if that was draining and leaves
    /// with this call.
    pub fn ended(&mut self, placed_call: PlacedCall) -> Option<usize> {
        let replica = self.of(&placed_call)?;
        replica.load.end(placed_call.awaited, placed_call.tokens);
        replica.health.ended(placed_call.number);
        let leaves = replica.draining && replica.load.calls() == 0;
        if placed_call.awaited.is_some() && !placed_call.accepted {
            let Affinity { session, prefixes: beginnings, .. } = &placed_call.affinity;
            for hash in session.iter().chain(beginnings.iter()) {
                self.prefix_cache.take_back(*hash, placed_call.cache, placed_call.number);
            }
        }
        if leaves && let Some(slot) = self.replicas.get_mut(placed_call.at) {
            *slot = None;
        }
        leaves.then_some(placed_call.at)
    }

    /// Records an accepted attempt.
    pub fn succeeded(&mut self, now: Instant, placed_call: &mut PlacedCall) {
        placed_call.accepted = true;
        let replica = self.of(placed_call);
        if replica.is_some_and(|replica| replica.health.succeeded(now, placed_call.number, placed_call.sent))
        {
            self.settle(now);
        }
    }

    /// Records a failed attempt. Returns `false` if it says nothing about the replica's current
    /// state.
    pub fn failed(&mut self, now: Instant, placed_call: &PlacedCall, fault: Fault) -> bool {
        let replica = self.replicas.get_mut(placed_call.at).and_then(Option::as_mut);
        let Some(replica) = replica.filter(|known| known.placed.id == placed_call.placed.id) else {
            return false;
        };
        let counts = replica.health.failed(now, placed_call.number, placed_call.sent, fault, &mut self.rng);
        self.settle(now);
        counts
    }

    /// Returns the replicas that went down since the last call. Their unanswered calls are to be
    /// cancelled.
    pub fn take_stranded(&mut self) -> ReplicaSet {
        let falls =
            |known: &mut Option<Replica>| known.as_mut().is_some_and(|known| known.health.take_went_down());
        self.replicas.iter_mut().enumerate().filter_map(|(at, known)| falls(known).then_some(at)).collect()
    }

    /// Returns the share of a replica's slots in force: below 1 during slow start. As of the last
    /// [`Placement::eligible`].
    pub fn share(&self, now: Instant, at: usize) -> f64 {
        self.replicas
            .get(at)
            .and_then(Option::as_ref)
            .map_or(1.0, |known| known.health.share(now, &self.settings))
    }

    /// Returns when time alone may make a replica eligible or raise its share.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.replicas
            .iter()
            .flatten()
            .filter_map(|replica| replica.health.next_wake(now, &self.settings))
            .min()
    }

    /// Returns the index of a replica.
    pub fn index_of(&self, id: ReplicaId) -> Option<usize> {
        self.known().find(|(_, known)| known.placed.id == id).map(|(at, _)| at)
    }

    /// Returns the state of all replicas.
    pub fn view(&self, now: Instant) -> Vec<ReplicaView> {
        let view = |replica: &Replica| ReplicaView {
            id: replica.placed.id,
            url: replica.placed.url.clone(),
            state: if replica.draining { "draining" } else { replica.health.name() },
            is_eligible: replica.is_open(now),
            weight: replica.member.weight,
            share: replica.health.share(now, &self.settings),
            ejections: replica.health.ejections(),
            requests: replica.load.calls(),
            tokens: replica.load.tokens,
            others: replica.load.others(now, self.poll).map(|others| others.calls()),
            kv_usage: replica.load.kv_usage(now, self.poll),
            models: replica.known_models(),
            slots: None,
        };
        self.replicas.iter().flatten().map(view).collect()
    }

    /// Lets time pass for all replicas, and updates what depends on their states.
    fn settle(&mut self, now: Instant) {
        for replica in self.replicas.iter_mut().flatten() {
            replica.health.tick(now, &self.settings);
            if let Some(soon) = replica.health.take_alarmed() {
                replica.polled.poll_health_at(now + soon);
            }
            if replica.health.take_ended() {
                self.prefix_cache.forget(replica.load.cache.name);
                replica.load.restarted();
                replica.polled.forget_models();
            }
        }
        let kept = self.kept();
        let whole = self.present(|replica| !replica.draining && replica.health.is_whole());
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            if let Some(replica) = replica {
                let alone = whole.less(ReplicaSet::one(at)).is_empty();
                replica.health.update_exemption(kept.contains(at), alone);
            }
        }
    }

    fn of(&mut self, placed_call: &PlacedCall) -> Option<&mut Replica> {
        let replica = self.replicas.get_mut(placed_call.at)?.as_mut()?;
        (replica.placed.id == placed_call.placed.id).then_some(replica)
    }

    fn cache(&self, at: usize) -> Option<EngineCache> {
        Some(self.replicas.get(at)?.as_ref()?.load.cache)
    }

    fn is_seen(&self, now: Instant, at: usize) -> bool {
        let replica = self.replicas.get(at).and_then(Option::as_ref);
        replica.is_some_and(|replica| replica.load.others(now, self.poll).is_some())
    }

    fn known(&self) -> impl Iterator<Item = (usize, &Replica)> {
        self.replicas.iter().enumerate().filter_map(|(at, known)| Some((at, known.as_ref()?)))
    }

    fn present(&self, wanted: impl Fn(&Replica) -> bool) -> ReplicaSet {
        self.known().filter(|(_, replica)| wanted(replica)).map(|(at, _)| at).collect()
    }
}
