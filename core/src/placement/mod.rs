//! Which replica of a pool a call goes to, which of them are in the choice at all, and what to ask them.
//!
//! Pure: told `now`, what was sent and what was seen; what is left to chance is drawn from a generator of its own, so that the same calls with the same seed go the
//! same way.
//!
//! - [`choice`](self): the rule, and why it is that. What it weighs: `load` (work before a call), `speed`, `memory` (what is cached where), `key` and `rendezvous` (what clients
//!   that know nothing of one another agree on), `bound`.
//! - `health`: who is in the choice, a state machine for each replica. Of evidence that may be wrong, calls that fail and silence, never more than half of the pool is
//!   out: then the least bad stay in. Who refuses connections is out, whatever their number.
//! - `poll_requests`: when to ask what.
//! - `members`: who joins and who leaves, and what they serve.
//!
//! What is stale is unknown, and what is unknown is neither full nor ill.

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

use fastrand::Rng;

use self::affinity_key::Counts;
use self::health::{HealthSettings, HealthState};
use self::polls::PollSchedule;
use self::prefix_cache::{EngineCache, PrefixCache};
use self::replica::Replica;
pub use self::replica_set::{MOST, ReplicaSet};
pub use self::types::{
    Fault, Member, Observation, Placed, PollKind, PollRequest, PollRequests, ReplicaId, Wants, Work,
};
use crate::adaptive::AdaptiveView;
use crate::config::PoolConfig;
use crate::duration;
use crate::kv;
pub use crate::wire::request::Affinity;
pub use crate::wire::vllm::{EngineMetrics, Model};

/// How fast means over calls forget: about so many.
const SPAN: f64 = 32.0;

/// The policy of one pool: see the module's documentation.
#[derive(Clone, Debug)]
pub struct Placement {
    replicas: Vec<Option<Replica>>,
    ids: u64,
    calls: u64,
    rng: Rng,
    polls: PollSchedule,
    settings: HealthSettings,
    /// How often loads are looked at, as far as a look's age goes.
    poll: Duration,
    prefix_cache: PrefixCache,
    counts: Counts,
    /// Tokens that a call's prompt has to be computed, in the mean.
    typical: f64,
    /// All members, where some have no place yet.
    pending: Option<Arc<[Member]>>,
    /// The share of all calls that is others', in the mean over looks. A half until the first: nobody knows.
    foreign: f64,
}

/// A call at a replica: what was counted there for it. Goes back by [`Placement::ended`], once.
#[derive(Debug)]
#[must_use = "what is not ended counts for ever"]
pub struct PlacedCall {
    /// The replica's place.
    pub at: usize,
    /// Which it is.
    pub placed: Placed,
    number: u64,
    sent: Instant,
    /// Prompt tokens that were to be computed for it, until its first token.
    awaited: Option<u64>,
    /// Whether it was accepted: an answer that comes in one piece has no first token.
    accepted: bool,
    tokens: u64,
    /// The work that its first token waits for, itself included.
    work: f64,
    /// What it brought to which memory, if it runs.
    affinity: Affinity,
    cache: u64,
}

/// What is to be seen of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// Which.
    pub id: ReplicaId,
    /// Where.
    pub url: Arc<str>,
    /// `in`, `suspect`, `down`, `trial` (half open), `starting` (slow start), `draining`.
    pub state: &'static str,
    /// Whether calls may go to it now: of one that is down too, where half of the pool would be out without it.
    pub is_eligible: bool,
    /// Its weight, as configured.
    pub weight: f64,
    /// The share of that which counts now: below 1 while it starts slowly.
    pub share: f64,
    /// How often it has left the choice.
    pub ejections: u64,
    /// Calls of our own.
    pub requests: usize,
    /// Tokens of our own.
    pub tokens: u64,
    /// Calls of others, at the last look that is not stale.
    pub others: Option<f64>,
    /// See [`EngineMetrics::kv_usage`].
    pub kv_usage: Option<f64>,
    /// What it is known to serve; `None`: not known.
    pub models: Option<Vec<Arc<str>>>,
    /// Its slots and memory; `None` where nobody keeps books of them.
    pub slots: Option<SlotsView>,
}

/// What there is at a replica, and what is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotsView {
    /// Slots in force: of one that comes back slowly, its share of them.
    pub limit: usize,
    /// Calls that hold one.
    pub in_flight: usize,
    /// How its limit is found; `None`: it is fixed.
    pub adaptive: Option<AdaptiveView>,
    /// Cuts of its limit so far.
    pub cuts: u64,
    /// Its memory, where the size is known.
    pub kv: Option<kv::View>,
}

impl Placement {
    /// A pool without replicas. `seed`: what is drawn by chance is drawn from it.
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

    /// What was seen of a replica. One that has left is not known any more.
    pub fn observe(&mut self, now: Instant, id: ReplicaId, sight: Observation) {
        let Some(replica) = self.index_of(id) else { return };
        let settings = self.settings;
        let Some(replica) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return };
        let (health, polled) = (&mut replica.health, &mut replica.polled);
        match sight {
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
                // One that loads yet serves nothing, and says so.
                replica.models = Some(models).filter(|models| !models.is_empty());
                if replica.models.is_some() {
                    polled.on_models();
                }
            }
        }
        self.settle(now);
    }

    /// A sign of life: something came from a replica. Cheap, and need not be told for every byte.
    pub fn on_alive(&mut self, now: Instant, at: usize) {
        let replica = self.replicas.get_mut(at).and_then(Option::as_mut);
        if replica.is_some_and(|replica| replica.health.on_alive(now)) {
            self.settle(now);
        }
    }

    /// Calls wait: the replicas are to be looked after, though none is sent.
    pub fn wake(&mut self, now: Instant) {
        self.polls.active = Some(now);
    }

    /// What to ask of whom, now. Each poll_request is told once; its answer is [`Placement::saw`].
    pub fn poll_requests(&mut self, now: Instant) -> PollRequests {
        self.settle(now);
        self.polls.due(now, self.replicas.iter_mut().flatten(), &mut self.rng)
    }

    /// Those that calls may go to now: they are well, as far as is known, and do not drain.
    pub fn eligible(&mut self, now: Instant) -> ReplicaSet {
        self.settle(now);
        self.present(|replica| replica.is_open(now))
    }

    /// A replica for a request that takes no slot: one in the choice, else one that merely asked to be left alone, else any that does not refuse connections. `None`: there is
    /// none.
    pub fn pick_without_slot(&mut self, now: Instant) -> Option<Placed> {
        let choice = self.eligible(now);
        let held = |replica: &Replica| !replica.draining && replica.health.is_eligible();
        let open = [choice, self.present(held), self.present(|replica| !replica.health.is_refusing())];
        let open = open.into_iter().find(|places| !places.is_empty())?;
        let at = self.choose(now, None, Work::default(), open)?;
        Some(self.replicas.get(at)?.as_ref()?.placed.clone())
    }

    /// Whether a replica is down, or is not known any more: nothing is to be hoped of it for a stream that is silent.
    pub fn is_down(&self, id: ReplicaId) -> bool {
        let replica = self.index_of(id).and_then(|at| self.replicas.get(at)?.as_ref());
        replica.is_none_or(|replica| replica.health.state() == HealthState::Down)
    }

    /// Of those that are out by evidence that may be wrong, those that stay in because more than half of those that do not refuse connections would be out: the least bad.
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

    /// A call goes there.
    pub fn sent(&mut self, now: Instant, at: usize, wants: Option<&Wants>, work: Work) -> Option<PlacedCall> {
        let mut candidate = self.candidates(now, wants, work, ReplicaSet::one(at)).pop()?;
        // What others sent there is not known, but how much the caches hold of what comes is.
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
            for (index, beginning) in affinity.beginnings.iter().enumerate() {
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

    /// Its first token came.
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

    /// It is over. A replica that drains leaves with its last call: then this is its place, which is free.
    pub fn ended(&mut self, placed_call: PlacedCall) -> Option<usize> {
        let replica = self.of(&placed_call)?;
        replica.load.end(placed_call.awaited, placed_call.tokens);
        replica.health.ended(placed_call.number);
        let leaves = replica.draining && replica.load.calls() == 0;
        if placed_call.awaited.is_some() && !placed_call.accepted {
            let Affinity { session, beginnings, .. } = &placed_call.affinity;
            for hash in session.iter().chain(beginnings.iter()) {
                self.prefix_cache.take_back(*hash, placed_call.cache, placed_call.number);
            }
        }
        if leaves && let Some(slot) = self.replicas.get_mut(placed_call.at) {
            *slot = None;
        }
        leaves.then_some(placed_call.at)
    }

    /// An attempt there was accepted.
    pub fn succeeded(&mut self, now: Instant, placed_call: &mut PlacedCall) {
        placed_call.accepted = true;
        let replica = self.of(placed_call);
        if replica.is_some_and(|replica| replica.health.succeeded(now, placed_call.number, placed_call.sent))
        {
            self.settle(now);
        }
    }

    /// An attempt there failed. Returns `false` if that says nothing of the replica as it is now.
    pub fn failed(&mut self, now: Instant, placed_call: &PlacedCall, fault: Fault) -> bool {
        let replica = self.replicas.get_mut(placed_call.at).and_then(Option::as_mut);
        let Some(replica) = replica.filter(|known| known.placed.id == placed_call.placed.id) else {
            return false;
        };
        let counts = replica.health.failed(now, placed_call.number, placed_call.sent, fault, &mut self.rng);
        self.settle(now);
        counts
    }

    /// Those that went down since this was last asked: what they have not begun to answer is to be called back.
    pub fn take_stranded(&mut self) -> ReplicaSet {
        let falls =
            |known: &mut Option<Replica>| known.as_mut().is_some_and(|known| known.health.take_went_down());
        self.replicas.iter_mut().enumerate().filter_map(|(at, known)| falls(known).then_some(at)).collect()
    }

    /// The share of its slots that a replica has in force: below 1 while it comes back slowly. As of the last time that [`Placement::is_eligible`] was asked.
    pub fn share(&self, now: Instant, at: usize) -> f64 {
        self.replicas
            .get(at)
            .and_then(Option::as_ref)
            .map_or(1.0, |known| known.health.share(now, &self.settings))
    }

    /// When time alone may bring a replica into the choice, or raise its share.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.replicas
            .iter()
            .flatten()
            .filter_map(|replica| replica.health.next_wake(now, &self.settings))
            .min()
    }

    /// Where a replica stands in the table.
    pub fn index_of(&self, id: ReplicaId) -> Option<usize> {
        self.known().find(|(_, known)| known.placed.id == id).map(|(at, _)| at)
    }

    /// What a person would want to know.
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

    /// Time passes for all of them, and what follows from how they are now.
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
