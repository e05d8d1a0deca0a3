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
use std::time::Instant;
pub use tidegate_config::MAX_REPLICAS;
use tidegate_config::{PoolConfig, ReplicaConfig};

use fastrand::Rng;

use self::affinity_key::Counts;
use self::health::{HealthSettings, HealthState};
use self::polls::PollSchedule;
use self::prefix_cache::PrefixCache;
use self::replica::Replica;
pub use self::replica_set::ReplicaSet;
pub use self::types::{
    Fault, Observation, Placed, PollKind, PollRequest, PollRequests, ReplicaId, Wants, Work,
};
use crate::adaptive::AdaptiveView;
use crate::kv;
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
    prefix_cache: PrefixCache,
    counts: Counts,
    /// The mean number of prompt tokens of a call that have to be computed.
    mean_uncached: f64,
    /// All members, if some have no index yet.
    pending: Option<Arc<[ReplicaConfig]>>,
    /// The mean share of calls that other clients sent. A half until the first poll.
    others_share: f64,
}

/// A call at a replica: what was counted there for it. Must be passed to [`Placement::on_ended`] once.
#[derive(Debug)]
#[must_use = "what is not ended counts for ever"]
pub struct PlacedCall {
    /// The replica's index.
    pub at: usize,
    /// The replica.
    pub placed: Placed,
    number: u64,
    sent: Instant,
    /// Prompt tokens to be computed for the call. `None` after its first token.
    uncached: Option<u64>,
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
        let poll = config.poll.map(|poll| poll.min(duration::MAX));
        Self {
            replicas: Vec::new(),
            ids: 0,
            calls: 0,
            rng: Rng::with_seed(seed),
            polls: PollSchedule { poll, active_at: None, model_wanted_at: None },
            settings: HealthSettings {
                probes: config.health.is_some(),
                down_after: config.down_after,
                slow_start: config.slow_start.unwrap_or_default(),
            },
            prefix_cache: PrefixCache::new(),
            counts: Counts::new(),
            mean_uncached: 0.0,
            pending: None,
            others_share: 0.5,
        }
    }

    /// Applies an observation. Observations of replicas that have left are ignored.
    pub fn observe(&mut self, now: Instant, id: ReplicaId, observation: Observation) {
        let mut replicas = self.replicas.iter_mut().flatten();
        let Some(replica) = replicas.find(|replica| replica.placed.id == id) else { return };
        let asked = replica.polled.on_answer(observation.kind());
        let health = &mut replica.health;
        match observation {
            Observation::ProbeOk => health.on_probe_ok(now),
            Observation::ProbeFailed => health.on_probe_failed(now),
            Observation::ConnectRefused => health.on_probe_refused(now),
            Observation::ProbeTimeout => health.on_probe_timeout(now, asked.unwrap_or(now)),
            Observation::Metrics(metrics) => {
                health.on_alive(now);
                replica.load.observe(now, &metrics);
                replica.load.set_kv_tokens(replica.member.kv_tokens);
                let ours = replica.load.calls() as f64;
                let others = replica.load.others(now).map_or(0.0, |others| others.calls());
                if ours + others > 0.0 {
                    self.others_share += (others / (ours + others) - self.others_share) / SPAN;
                }
            }
            Observation::MetricsUnreadable => {}
            Observation::Models(models) => {
                health.on_alive(now);
                // A replica that is still loading reports no models.
                replica.models = Some(models).filter(|models| !models.is_empty());
                replica.polled.knows_models |= replica.models.is_some();
            }
        }
        self.settle(now);
    }

    /// Records that a byte was received from the replica at an index. Cheap, and not needed for
    /// every byte.
    pub fn on_alive(&mut self, now: Instant, at: usize) {
        let replica = self.replicas.get_mut(at).and_then(Option::as_mut);
        if replica.is_some_and(|replica| replica.health.on_alive(now)) {
            self.settle(now);
        }
    }

    /// Keeps polling active because calls wait.
    pub fn wake(&mut self, now: Instant) {
        self.polls.active_at = Some(now);
    }

    /// Returns what to poll now. Each request is returned once, and answered by
    /// [`Placement::observe`].
    pub fn poll_requests(&mut self, now: Instant) -> PollRequests {
        self.settle(now);
        self.polls.due(now, &mut self.replicas, &mut self.rng)
    }

    /// Returns the replicas that calls may be sent to now: healthy as far as is known, not busy, and
    /// not draining.
    pub fn eligible(&mut self, now: Instant) -> ReplicaSet {
        self.settle(now);
        self.filter(|replica| replica.is_open(now))
    }

    /// Returns a replica for a request that takes no slot, or `None` if there is none.
    ///
    /// Prefers eligible replicas, then busy ones, then any that does not refuse connections.
    pub fn pick_without_slot(&mut self, now: Instant) -> Option<Placed> {
        let eligible = self.eligible(now);
        let healthy = self.filter(|replica| !replica.draining && replica.health.is_eligible());
        let listening = self.filter(|replica| !replica.health.is_refusing());
        let open = eligible.or_if_empty(healthy).or_if_empty(listening);
        // Without a replica, nothing is drawn from the generator.
        if open.is_empty() {
            return None;
        }
        let at = self.choose(now, None, Work::default(), open)?;
        Some(self.replica(at)?.placed.clone())
    }

    /// Returns `true` if the replica is down or has left, so that a silent stream of it will not
    /// continue.
    pub fn is_down(&self, id: ReplicaId) -> bool {
        let replica = self.index_of(id).and_then(|at| self.replica(at));
        replica.is_none_or(|replica| replica.health.state == HealthState::Down)
    }

    /// Records a call that is sent to the replica at an index. Returns `None`, and records nothing,
    /// if no replica has that index.
    pub fn on_sent(
        &mut self,
        now: Instant,
        at: usize,
        wants: Option<&Wants>,
        work: Work,
    ) -> Option<PlacedCall> {
        let mut candidate = self.candidates(now, wants, work, ReplicaSet::one(at)).pop()?;
        // It is unknown what other clients sent there, but known how much of the prompts the caches
        // hold.
        candidate.cached = candidate.cached.max(self.cached_by_others(work));
        let members = self.members();
        let model = wants.and_then(|wants| wants.model.as_deref());
        let may_serve = |model| self.filter(|replica| replica.serves(model) != Some(false)).and(members);
        if model.is_some_and(|model| may_serve(model).is_empty()) {
            self.polls.model_wanted_at = Some(now);
        }
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        self.polls.active_at = Some(now);
        self.calls += 1;
        let uncached = work.input.saturating_sub(candidate.cached);
        let tokens = work.input.saturating_add(work.output);
        replica.load.on_sent(uncached, work.output, tokens);
        replica.health.on_sent(self.calls);
        let affinity = wants.map(|wants| wants.affinity.clone()).unwrap_or_default();
        if wants.is_some() {
            self.counts.on_sent(&affinity, members.len());
        }
        let prefixes = affinity.prefixes.iter().enumerate();
        let prefixes = prefixes.map(|(index, prefix)| (*prefix, affinity.tokens(index, work.input)));
        for (prefix, tokens) in prefixes.chain(affinity.session.map(|session| (session, work.input))) {
            self.prefix_cache.insert(prefix, &replica.load.cache, tokens, self.calls);
        }
        self.mean_uncached +=
            (uncached as f64 - self.mean_uncached) / if self.calls == 1 { 1.0 } else { SPAN };
        Some(PlacedCall {
            at,
            placed: replica.placed.clone(),
            number: self.calls,
            sent: now,
            uncached: Some(uncached),
            accepted: false,
            tokens,
            work: candidate.work(work),
            affinity,
            cache: replica.load.cache.name,
        })
    }

    /// Records the first token of a call. Does nothing if its first token was already recorded.
    pub fn on_first_token(&mut self, now: Instant, call: &mut PlacedCall) {
        let Some(replica) = replica_of(&mut self.replicas, call) else { return };
        let Some(uncached) = call.uncached.take() else { return };
        replica.load.on_first_token(uncached);
        let took = now.saturating_duration_since(call.sent).mul_f64(replica.member.weight);
        replica.load.speed.observe(now, call.work, took);
        if replica.health.on_first_token(now, call) {
            self.settle(now);
        }
    }

    /// Records the end of a call. Returns the index of its replica if that was draining and leaves
    /// with this call, or `None` otherwise.
    pub fn on_ended(&mut self, call: PlacedCall) -> Option<usize> {
        let replica = replica_of(&mut self.replicas, &call)?;
        replica.load.on_ended(call.uncached, call.tokens);
        replica.health.on_ended(call.number);
        if call.uncached.is_some() && !call.accepted {
            for prefix in call.affinity.prefixes.iter().chain(&call.affinity.session) {
                self.prefix_cache.remove(*prefix, call.cache, call.number);
            }
        }
        let left = self.replicas.get_mut(call.at)?.take_if(|replica| replica.has_drained());
        left.map(|_| call.at)
    }

    /// Records an accepted attempt.
    pub fn on_accepted(&mut self, now: Instant, call: &mut PlacedCall) {
        call.accepted = true;
        let replica = replica_of(&mut self.replicas, call);
        if replica.is_some_and(|replica| replica.health.on_accepted(now, call)) {
            self.settle(now);
        }
    }

    /// Records a failed attempt. Returns `false` if the failure says nothing about the replica's
    /// current state: the replica has left, or it was busy at an earlier time only.
    pub fn on_failed(&mut self, now: Instant, call: &PlacedCall, fault: Fault) -> bool {
        let Some(replica) = replica_of(&mut self.replicas, call) else { return false };
        let counts = replica.health.on_failed(now, call, fault, &mut self.rng);
        self.settle(now);
        counts
    }

    /// Returns the replicas that went down since the last call of this method, except those that
    /// stay eligible. Their unanswered calls are to be cancelled.
    pub fn take_stranded(&mut self) -> ReplicaSet {
        let stranded = self.filter(|replica| replica.health.went_down && !replica.health.is_exempt);
        for Replica { health, .. } in self.replicas.iter_mut().flatten() {
            health.went_down &= health.is_exempt;
        }
        stranded
    }

    /// Returns the share of a replica's slots in force: below 1 during slow start, and 1 if no
    /// replica has the index. As of the last call of [`Placement::eligible`].
    pub fn share(&self, now: Instant, at: usize) -> f64 {
        self.replica(at).map_or(1.0, |replica| replica.health.share(now))
    }

    /// Returns when time alone may make a replica eligible or raise its share, or `None` if no
    /// replica waits for a time.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.known().filter_map(|(_, replica)| replica.health.next_wake(now)).min()
    }

    /// Returns the index of a replica, or `None` if the replica has left.
    pub fn index_of(&self, id: ReplicaId) -> Option<usize> {
        self.known().find(|(_, replica)| replica.placed.id == id).map(|(at, _)| at)
    }

    /// Returns the state of all replicas, in the order of their indices.
    pub fn view(&self, now: Instant) -> Vec<ReplicaView> {
        let view = |(_, replica): (usize, &Replica)| ReplicaView {
            id: replica.placed.id,
            url: replica.placed.url.clone(),
            state: if replica.draining { "draining" } else { replica.health.state_name() },
            is_eligible: replica.is_open(now),
            weight: replica.member.weight,
            share: replica.health.share(now),
            ejections: replica.health.ejections,
            requests: replica.load.calls(),
            tokens: replica.load.tokens,
            others: replica.load.others(now).map(|others| others.calls()),
            kv_usage: replica.load.kv_usage(now),
            models: replica.known_models(),
            slots: None,
        };
        self.known().map(view).collect()
    }

    /// Applies the changes that time alone causes, and what follows from the states of the
    /// replicas.
    fn settle(&mut self, now: Instant) {
        for replica in self.replicas.iter_mut().flatten() {
            replica.health.tick(now);
            if let Some(delay) = replica.health.probe_in.take() {
                replica.polled.urgent = Some(now + delay);
            }
            if std::mem::take(&mut replica.health.process_ended) {
                self.prefix_cache.clear(replica.load.cache.name);
                replica.load.on_restart();
                replica.polled.forget_models();
            }
        }
        let exempt = self.exempt();
        let whole = self.filter(|replica| !replica.draining && replica.health.has_full_share());
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            if let Some(Replica { health, .. }) = replica {
                health.is_exempt = exempt.contains(at);
                health.is_alone = whole.less(ReplicaSet::one(at)).is_empty();
            }
        }
    }

    /// Returns the ejected replicas that stay eligible because more than half of the pool would be
    /// ejected: the least bad ones. Draining replicas and those that refuse connections count
    /// neither as ejected nor for the half.
    fn exempt(&self) -> ReplicaSet {
        let listening = self.filter(|replica| !replica.draining && !replica.health.is_refusing());
        let ejected =
            self.known().filter(|(at, replica)| listening.contains(*at) && replica.health.is_ejected());
        let mut ejected: Vec<(usize, &Replica)> = ejected.collect();
        let excess = ejected.len().saturating_sub(listening.len() / 2);
        ejected.sort_by_key(|(_, replica)| replica.health.badness());
        ejected.into_iter().take(excess).map(|(at, _)| at).collect()
    }

    /// Returns the replica at an index, or `None` if there is none.
    fn replica(&self, at: usize) -> Option<&Replica> {
        self.replicas.get(at)?.as_ref()
    }

    /// Returns all replicas with their indices.
    fn known(&self) -> impl DoubleEndedIterator<Item = (usize, &Replica)> {
        self.replicas.iter().enumerate().filter_map(|(at, replica)| Some((at, replica.as_ref()?)))
    }

    /// Returns the replicas that satisfy a condition.
    fn filter(&self, condition: impl Fn(&Replica) -> bool) -> ReplicaSet {
        self.known().filter(|(_, replica)| condition(replica)).map(|(at, _)| at).collect()
    }
}

/// Returns the replica that a call was sent to, or `None` if that replica has left.
fn replica_of<'a>(replicas: &'a mut [Option<Replica>], call: &PlacedCall) -> Option<&'a mut Replica> {
    replicas.get_mut(call.at)?.as_mut().filter(|replica| replica.placed.id == call.placed.id)
}
