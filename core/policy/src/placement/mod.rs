//! Replica selection for pools: which replica a call is sent to, which replicas are eligible, and
//! what to poll from them.
//!
//! The policy is pure: `now`, calls and observations are arguments, and randomness comes from a
//! seeded generator. Replicas are addressed by their index in a table of up to [`MAX_REPLICAS`]
//! entries. An index is reused after its replica has left; a [`ReplicaId`] never is.
//!
//! - `select`: the selection rule and its rationale. Its inputs are `load_estimate` (work queued
//!   before a call), `replica_speed` (relative to other replicas), `prefix_cache` (which prefixes
//!   are cached where), `affinity_key` and `rendezvous` (a key per conversation, and the order of
//!   replicas for a key, on which independent clients agree), and `load_bound`.
//! - `health`: a state machine per replica, which decides whether the replica is eligible. Evidence
//!   that may be wrong (failing calls, silence) ejects at most half of the pool, and the least bad
//!   replicas stay. Replicas that refuse connections, and replicas that fail each call while others
//!   accept calls, are always ejected.
//! - `poll_schedule`: when to poll the health, the load and the models of each replica.
//! - `members`: which replicas join and leave, and which models they serve.
//! - `partners`: the calls of other processes that share the pool.
//!
//! If metrics are stale, the load of a replica is unknown. An unknown load counts neither as full
//! nor as unhealthy.

mod affinity_key;
mod backlog;
mod health;
mod load_bound;
mod load_estimate;
mod members;
mod partners;
mod poll_schedule;
mod prefix_cache;
mod rendezvous;
mod replica;
mod replica_set;
mod replica_speed;
mod select;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::time::{Duration, Instant};
pub use tidegate_config::MAX_REPLICAS;
use tidegate_config::{PoolConfig, ReplicaConfig};

use fastrand::Rng;

use self::health::{HealthSettings, HealthState, OtherReplica};
pub use self::replica_set::ReplicaSet;
pub use self::types::{
    Fault, Observation, Placed, PollKind, PollRequest, PollRequests, ReplicaId, Wants, Work,
};
use self::{affinity_key::Counts, partners::Partners, poll_schedule::PollSchedule};
use self::{prefix_cache::PrefixCache, replica::Replica};
use crate::{adaptive::AdaptiveView, kv, labels::labelled};
use tidegate_protocol::duration;
pub use tidegate_protocol::request::Affinity;
pub use tidegate_protocol::vllm::{EngineMetrics, Model};
use tidegate_share::PlacementStep;
pub use tidegate_share::Placements;

/// Reciprocal of the weight that a new value has in the decaying means.
const SPAN: f64 = 32.0;

/// The selection policy of one pool. See [the module](self).
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Placement {
    /// The replicas by index. `None` if the replica of an index has left and the index is free.
    replicas: Vec<Option<Replica>>,
    /// Last [`ReplicaId`] assigned, or 0 if none was.
    ids: u64,
    /// Number of calls that were counted, of partners too. It is also the number of the last call.
    calls: u64,
    rng: Rng,
    polls: PollSchedule,
    settings: HealthSettings,
    prefix_cache: PrefixCache,
    counts: Counts,
    /// Exponentially decaying mean of the number of uncached prompt tokens per call.
    mean_uncached: f64,
    /// All members, if some have not joined because no index was free. Otherwise `None`.
    pending: Option<Arc<[ReplicaConfig]>>,
    /// Decaying mean of other clients' share of all calls, from 0 to 1. It is 0.5 until the first
    /// load poll that reports calls.
    others_share: f64,
    /// The processes that share the pool, or `None` if there is no connection to them.
    partners: Option<Box<Partners>>,
}

/// The sender of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// This client.
    Own,
    /// A process that shares the pool.
    Partner,
}

/// A call that was sent to a replica. Pass it once to [`Placement::on_ended`].
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
#[must_use = "a call that never ends is counted as in flight for ever"]
pub struct PlacedCall {
    /// Index of the replica.
    pub at: usize,
    /// Identifier and URL of the replica.
    pub placed: Placed,
    sender: Sender,
    /// Number of the call among all counted calls of the pool, from 1.
    number: u64,
    /// When the call was sent.
    sent: Instant,
    /// Prompt tokens to be computed for the call. `None` after its first token.
    uncached: Option<u64>,
    /// Whether the replica accepted the call. Needed because an answer that is not streamed has no
    /// first token.
    accepted: bool,
    /// Prompt tokens plus expected output tokens.
    tokens: u64,
    /// Work that the replica does before the first token, in prompt tokens: the queued work plus
    /// the call's own.
    work: f64,
    /// The model that the call names, or `None` if it names none.
    model: Option<Arc<str>>,
    /// The prefixes and the session that are cached at the replica if the call runs.
    affinity: Affinity,
    /// Name of the replica's prefix cache when the call was sent.
    cache: u64,
}

labelled! {
    /// How far a replica may be used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReplicaState {
        /// Healthy.
        In = "in",
        /// Healthy, in slow start.
        Starting = "starting",
        /// Ejected.
        Suspect = "suspect",
        /// Ejected, and its unanswered calls are cancelled.
        Down = "down",
        /// Half open: one call at a time.
        Trial = "trial",
        /// No longer a member, finishes its calls.
        Draining = "draining",
    }
}

/// The state of a replica for snapshots and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// The replica's identifier.
    pub id: ReplicaId,
    /// The replica's base URL.
    pub url: Arc<str>,
    /// How far the replica may be used.
    pub state: ReplicaState,
    /// Whether calls may be sent to the replica now. Also `true` for an ejected replica that stays
    /// eligible because more than half of the pool would be ejected.
    pub is_eligible: bool,
    /// The configured weight.
    pub weight: f64,
    /// Usable share of the weight, from 0.1 to 1. It is below 1 during slow start and trials.
    pub share: f64,
    /// How often the replica was ejected since it joined.
    pub ejections: u64,
    /// Number of this client's calls in flight at the replica.
    pub requests: usize,
    /// Prompt tokens plus expected output tokens of these calls.
    pub tokens: u64,
    /// Number of other clients' calls: those at the last poll, and the current ones of processes
    /// that share the pool. `None` if neither is known, because there was no poll or the last one
    /// is stale.
    pub others: Option<f64>,
    /// Used share of the KV-cache memory at the last poll, from 0 to 1. `None` if there was no
    /// poll, or if the last one is stale or did not report the share. See
    /// [`EngineMetrics::kv_usage`].
    pub kv_usage: Option<f64>,
    /// Names of the models that the replica serves, or `None` if they are not known.
    pub models: Option<Vec<Arc<str>>>,
    /// The status of the last model poll if it returned no list of models, otherwise `None`.
    pub models_status: Option<u16>,
    /// Why no calls are sent to the replica, such as `connections are refused`, or `None` if calls
    /// are sent to it or it only left the pool.
    pub problem: Option<&'static str>,
    /// Slots and memory. `None` in views of [`Placement`], which tracks neither; the scheduler
    /// fills them in.
    pub slots: Option<SlotsView>,
}

/// The slots and the KV-cache memory of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotsView {
    /// Current number of slots. During slow start, this is a share of the replica's slots.
    pub limit: usize,
    /// Number of slots in use.
    pub in_flight: usize,
    /// State of the adaptive limit, or `None` if the number of slots is fixed.
    pub adaptive: Option<AdaptiveView>,
    /// How often the limit was decreased since the replica joined.
    pub cuts: u64,
    /// State of the memory, or `None` if its size is not known.
    pub kv: Option<kv::KvView>,
}

impl Placement {
    /// Creates a pool without replicas. `seed` seeds the random generator: the same seed and the
    /// same events lead to the same choices. Add replicas with [`Placement::set_members`].
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
            partners: None,
        }
    }

    /// Applies the result of a poll to the replica's health, load or models. Does nothing if the
    /// replica has left.
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
                replica.on_models(Ok(models));
            }
            Observation::ModelsUnreadable(status) => {
                health.on_alive(now);
                replica.on_models(Err(status));
            }
        }
        self.settle(now);
    }

    /// Records that a byte was received from the replica at the index `at`. Does nothing if there
    /// is no such replica. This is cheap, and it need not be called for every byte.
    pub fn on_alive(&mut self, now: Instant, at: usize) {
        let replica = self.replicas.get_mut(at).and_then(Option::as_mut);
        if replica.is_some_and(|replica| replica.health.on_alive(now)) {
            self.settle(now);
        }
    }

    /// Keeps polling active for the next 10 s. Call this while calls wait in the queue, because
    /// pools without calls are not polled.
    pub fn wake(&mut self, now: Instant) {
        self.polls.active_at = Some(now);
    }

    /// Returns the polls that are due now. Each poll is returned once; report its result to
    /// [`Placement::observe`]. A poll without a result is repeated after 5 s.
    pub fn poll_requests(&mut self, now: Instant) -> PollRequests {
        self.settle(now);
        self.polls.due(now, &mut self.replicas, &mut self.rng)
    }

    /// Returns the replicas that calls may be sent to now: healthy as far as is known, not busy,
    /// and not draining.
    pub fn eligible(&mut self, now: Instant) -> ReplicaSet {
        self.settle(now);
        self.filter(|replica| replica.is_open(now))
    }

    /// Returns a replica for a request that takes no slot, or `None` if the pool has no replicas or
    /// all refuse connections.
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

    /// Records a call that is sent to the replica at the index `at`, usually one that
    /// [`Placement::choose`] returned. Returns `None`, and records nothing, if there is no such
    /// replica.
    pub fn on_sent(
        &mut self,
        now: Instant,
        at: usize,
        wants: Option<&Wants>,
        work: Work,
    ) -> Option<PlacedCall> {
        let call = self.count(now, at, wants, work, Sender::Own)?;
        if call.model.as_deref().is_some_and(|model| self.could_serve(model).is_empty()) {
            self.polls.model_wanted_at = Some(now);
        }
        self.polls.active_at = Some(now);
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        replica.health.on_sent(now, call.number);
        if let Some(partners) = &mut self.partners {
            partners.on_sent(now, &call, replica.name, work);
        }
        Some(call)
    }

    /// Counts a call that is sent to a replica in its load, its cache, and the counts of affinity
    /// keys. Returns `None`, and counts nothing, if there is no such replica.
    fn count(
        &mut self,
        now: Instant,
        at: usize,
        wants: Option<&Wants>,
        work: Work,
        sender: Sender,
    ) -> Option<PlacedCall> {
        let mut candidate = self.candidates(now, wants, work, ReplicaSet::one(at)).pop()?;
        // It is unknown what other clients sent there, but known how much of the prompts the caches
        // hold.
        candidate.cached = candidate.cached.max(self.cached_by_others(work));
        let members = self.members().len();
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        self.calls += 1;
        let uncached = work.input.saturating_sub(candidate.cached);
        let tokens = work.input.saturating_add(work.output);
        replica.load.on_sent(sender, uncached, work.output, tokens);
        let affinity = wants.map(|wants| wants.affinity.clone()).unwrap_or_default();
        if wants.is_some() {
            self.counts.on_sent(&affinity, members);
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
            sender,
            number: self.calls,
            sent: now,
            uncached: Some(uncached),
            accepted: false,
            tokens,
            work: candidate.work(work),
            model: wants.and_then(|wants| wants.model.clone()),
            affinity,
            cache: replica.load.cache.name,
        })
    }

    /// Records the first token of a call: the replica's speed is learned from the time since the
    /// call was sent. Does nothing if the first token was already recorded or the replica has left.
    pub fn on_first_token(&mut self, now: Instant, call: &mut PlacedCall) {
        if call.uncached.is_none() {
            return;
        }
        let took = now.saturating_duration_since(call.sent);
        if let Some(partners) = &mut self.partners {
            partners.on_first_token(call, took);
        }
        self.count_first_token(now, call, took);
        let Some(replica) = replica_of(&mut self.replicas, call) else { return };
        if replica.health.on_first_token(now, call) {
            self.settle(now);
        }
    }

    /// Counts the first token of a call that arrived `took` after the call was sent, in the load
    /// and the speed of its replica. Does nothing in the same cases as
    /// [`Placement::on_first_token`].
    fn count_first_token(&mut self, now: Instant, call: &mut PlacedCall, took: Duration) {
        let Some(replica) = replica_of(&mut self.replicas, call) else { return };
        let Some(uncached) = call.uncached.take() else { return };
        replica.load.on_first_token(uncached);
        replica.load.speed.observe(now, call.work, took.mul_f64(replica.member.weight));
    }

    /// Records the end of a call. Returns the index of its replica if the replica was draining and
    /// leaves with this call, or `None` otherwise.
    pub fn on_ended(&mut self, call: PlacedCall) -> Option<usize> {
        let ran = call.uncached.is_none() || call.accepted;
        if let (Sender::Own, Some(partners)) = (call.sender, &mut self.partners) {
            partners.push_event(call.number, PlacementStep::Ended { accepted: ran });
        }
        let replica = replica_of(&mut self.replicas, &call)?;
        replica.load.on_ended(call.sender, call.uncached, ran, call.tokens);
        if call.sender == Sender::Own {
            replica.health.on_ended(call.number);
        }
        if !ran {
            for prefix in call.affinity.prefixes.iter().chain(&call.affinity.session) {
                self.prefix_cache.remove(*prefix, call.cache, call.number);
            }
        }
        let left = self.replicas.get_mut(call.at)?.take_if(|replica| replica.has_drained());
        left.map(|_| call.at)
    }

    /// Records that the replica accepted the call: the response has begun successfully.
    pub fn on_accepted(&mut self, now: Instant, call: &mut PlacedCall) {
        call.accepted = true;
        let Some(replica) = replica_of(&mut self.replicas, call) else { return };
        call.model.iter().for_each(|model| replica.on_model_served(model));
        if replica.health.on_accepted(now, call) {
            self.settle(now);
        }
    }

    /// Records a failed attempt. Returns `false` if the failure has no effect, because the replica
    /// has left or because the rejection is older than the replica's last busy period.
    pub fn on_failed(&mut self, now: Instant, call: &PlacedCall, fault: Fault) -> bool {
        let Some(replica) = replica_of(&mut self.replicas, call) else { return false };
        let counts = replica.health.on_failed(now, call, fault, &mut self.rng);
        if let (Fault::NoModel, Some(model)) = (fault, &call.model) {
            replica.on_model_missing(model);
        }
        if fault.may_be_of_call() {
            self.count_rejected(now, call);
        }
        self.settle(now);
        counts
    }

    /// Counts a call that its replica rejected or left unanswered, and compares the replica with
    /// the others.
    fn count_rejected(&mut self, now: Instant, call: &PlacedCall) {
        let others = self.known().filter(|(at, replica)| *at != call.at && !replica.draining);
        let others: Vec<_> = others.map(|(at, replica)| OtherReplica::new(at, &replica.health)).collect();
        if let Some(replica) = replica_of(&mut self.replicas, call) {
            replica.health.on_rejected(now, &call.affinity, &others);
        }
    }

    /// Returns `true` if the replica answered 404 for a model and nothing contradicts that.
    pub(crate) fn is_lacking_models(&self, id: ReplicaId) -> bool {
        let replica = self.index_of(id).and_then(|at| self.replica(at));
        replica.is_some_and(|replica| !replica.lacking.is_empty())
    }

    /// Returns the replicas that went down since the last call of this method, except those that
    /// stay eligible. Their unanswered calls are to be cancelled.
    pub(crate) fn take_stranded(&mut self) -> ReplicaSet {
        let stranded = self.filter(|replica| replica.health.went_down && !replica.health.is_exempt);
        for Replica { health, .. } in self.replicas.iter_mut().flatten() {
            health.went_down &= health.is_exempt;
        }
        stranded
    }

    /// Returns the usable share of the slots of the replica at the index `at`, from 0.1 to 1. It is
    /// below 1 during slow start and trials, and 1 if there is no such replica. This method does
    /// not apply state changes that time alone causes. [`Placement::eligible`] does.
    pub fn share(&self, now: Instant, at: usize) -> f64 {
        self.replica(at).map_or(1.0, |replica| replica.health.share(now))
    }

    /// Returns when time alone changes which replicas are eligible or a replica's share, or `None`
    /// if it never does.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.known().filter_map(|(_, replica)| replica.health.next_wake(now)).min()
    }

    /// Returns when the first replica that accepts no calls now is expected to accept calls again,
    /// if it is healthy by then: after its next health poll is answered, or when time alone ends
    /// its ejection or its busy period. Returns `None` if the time is not known.
    pub(crate) fn returns_at(&self, now: Instant) -> Option<Instant> {
        let members = self.known().map(|(_, replica)| replica).filter(|replica| !replica.draining);
        let returns = |replica: &Replica| replica.health.returns_at(now, self.polls.next_probe(now, replica));
        members.filter_map(returns).min()
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
            state: if replica.draining { ReplicaState::Draining } else { replica.health.replica_state() },
            is_eligible: replica.is_open(now),
            weight: replica.member.weight,
            share: replica.health.share(now),
            ejections: replica.health.ejections,
            requests: replica.load.own_calls(),
            tokens: replica.load.tokens,
            others: replica.load.all_others(now),
            kv_usage: replica.load.kv_usage(now),
            models: replica.known_models(),
            models_status: replica.models_status,
            problem: replica.health.problem(now),
            slots: None,
        };
        self.known().map(view).collect()
    }

    /// Applies the changes that time alone causes. Then schedules probes, clears the caches of
    /// ended processes, and updates which replicas are exempt, that is, stay eligible although they
    /// are ejected.
    fn settle(&mut self, now: Instant) {
        for replica in self.replicas.iter_mut().flatten() {
            replica.health.tick(now);
            if let Some(delay) = replica.health.probe_in.take() {
                replica.polled.urgent = Some(now + delay);
            }
            if std::mem::take(&mut replica.health.process_ended) {
                self.prefix_cache.clear(replica.load.cache.name);
                replica.load.on_restart();
                replica.lacking.clear();
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

    /// Returns the ejected replicas that stay eligible because more than half of the pool is
    /// ejected: the least bad ones. Draining replicas, replicas that refuse connections, and
    /// replicas that [fail each call](Placement::failing) count neither as ejected nor as part of
    /// the pool.
    fn exempt(&self) -> ReplicaSet {
        let doubted = self.members().less(self.refusing()).less(self.failing());
        let mut ejected: Vec<(usize, &Replica)> = self.known().collect();
        ejected.retain(|(at, replica)| doubted.contains(*at) && replica.health.is_ejected());
        let excess = ejected.len().saturating_sub(doubted.len() / 2);
        ejected.sort_by_key(|(_, replica)| replica.health.badness());
        ejected.into_iter().take(excess).map(|(at, _)| at).collect()
    }

    /// Returns the ejected replicas that have failed several calls in a row while a replica that is
    /// healthy now accepted calls. They would fail further calls, and as fast as they get them.
    fn failing(&self) -> ReplicaSet {
        let healthy = self.known().filter(|(_, replica)| !replica.draining);
        let accepted = healthy.filter_map(|(_, replica)| replica.health.last_accepted_if_healthy()).max();
        self.filter(|replica| replica.health.is_ejected() && replica.health.fails_each_call(accepted))
    }

    /// Returns the replicas that are ejected, also those that stay eligible because too many are.
    pub fn ejected(&self) -> ReplicaSet {
        self.filter(|replica| replica.health.is_ejected())
    }

    /// Returns the replica at the index `at`, or `None` if the index is free.
    fn replica(&self, at: usize) -> Option<&Replica> {
        self.replicas.get(at)?.as_ref()
    }

    /// Returns all replicas with their indices, in ascending order.
    fn known(&self) -> impl DoubleEndedIterator<Item = (usize, &Replica)> {
        self.replicas.iter().enumerate().filter_map(|(at, replica)| Some((at, replica.as_ref()?)))
    }

    /// Returns the indices of the replicas that satisfy a condition.
    fn filter(&self, condition: impl Fn(&Replica) -> bool) -> ReplicaSet {
        self.known().filter(|(_, replica)| condition(replica)).map(|(at, _)| at).collect()
    }
}

/// Returns the replica that a call was sent to, or `None` if that replica has left.
fn replica_of<'a>(replicas: &'a mut [Option<Replica>], call: &PlacedCall) -> Option<&'a mut Replica> {
    replicas.get_mut(call.at)?.as_mut().filter(|replica| replica.placed.id == call.placed.id)
}
