//! Which replica of a pool a call goes to, which of them are in the choice at all, and what to ask them.
//!
//! Pure: told `now`, what was sent and what was seen; what is left to chance is drawn from a generator of its own, so that the same calls with the same seed go the
//! same way.
//!
//! - [`choice`](self): the rule, and why it is that. What it weighs: `load` (work before a call), `speed`, `memory` (what is cached where), `key` and `rendezvous` (what clients
//!   that know nothing of one another agree on), `bound`.
//! - `health`: who is in the choice, a state machine for each replica. Of evidence that may be wrong, calls that fail and silence, never more than half of the pool is
//!   out: then the least bad stay in. Who refuses connections is out, whatever their number.
//! - `errands`: when to ask what.
//! - `members`: who joins and who leaves, and what they serve.
//!
//! What is stale is unknown, and what is unknown is neither full nor ill.

mod backlog;
mod bound;
mod choice;
mod errands;
mod health;
mod key;
mod load;
mod members;
mod memory;
mod outcome;
mod places;
mod rendezvous;
mod replica;
mod speed;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::errands::Rounds;
use self::health::{State, Terms};
use self::key::Counts;
use self::memory::{Cache, Memory};
pub use self::places::{MOST, Places};
use self::replica::Replica;
pub use self::words::{Ask, Errand, Errands, Fault, Member, Placed, ReplicaId, Sight, Wants, Work};
use crate::adaptive::AdaptiveView;
use crate::config::PoolConfig;
use crate::duration;
use crate::kv;
pub use crate::wire::request::Affinity;
pub use crate::wire::vllm::{Model, Standing};

/// How fast means over calls forget: about so many.
const SPAN: f64 = 32.0;

/// The policy of one pool: see the module's documentation.
#[derive(Clone, Debug)]
pub struct Placement {
    replicas: Vec<Option<Replica>>,
    ids: u64,
    calls: u64,
    rng: Rng,
    rounds: Rounds,
    terms: Terms,
    /// How often loads are looked at, as far as a look's age goes.
    poll: Duration,
    memory: Memory,
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
pub struct Parcel {
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
    pub in_choice: bool,
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
    /// See [`Standing::kv_usage`].
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
            rounds: Rounds { probes, poll, active: None, wanted: None },
            terms: Terms {
                probes,
                down_after: config.down_after,
                slow_start: config.slow_start.unwrap_or_default(),
            },
            poll: poll.unwrap_or(Duration::from_secs(1)),
            memory: Memory::new(),
            counts: Counts::new(),
            typical: 0.0,
            pending: None,
            foreign: 0.5,
        }
    }

    /// What was seen of a replica. One that has left is not known any more.
    pub fn saw(&mut self, now: Instant, id: ReplicaId, sight: Sight) {
        let Some(replica) = self.place_of(id) else { return };
        let terms = self.terms;
        let Some(replica) = self.replicas.get_mut(replica).and_then(Option::as_mut) else { return };
        let (health, asked) = (&mut replica.health, &mut replica.asked);
        match sight {
            Sight::Well => {
                asked.answered(Ask::Health);
                health.well(now);
            }
            Sight::Unwell => {
                asked.answered(Ask::Health);
                health.unwell(now, &terms);
            }
            Sight::Gone => {
                asked.answered(Ask::Health);
                health.gone(now);
            }
            Sight::Silent => {
                let asked = asked.answered(Ask::Health).unwrap_or(now);
                health.silent(now, asked, &terms);
            }
            Sight::Standing(standing) => {
                asked.answered(Ask::Load);
                health.alive(now);
                replica.load.saw(now, &standing);
                if let Some(tokens) = replica.member.kv_tokens {
                    replica.load.holds(tokens);
                }
                let ours = replica.load.calls() as f64;
                let others = replica.load.others(now, self.poll).map_or(0.0, |others| others.calls());
                if ours + others > 0.0 {
                    self.foreign += (others / (ours + others) - self.foreign) / SPAN;
                }
            }
            Sight::Unknown => {
                asked.answered(Ask::Load);
            }
            Sight::Models(models) => {
                asked.answered(Ask::Models);
                health.alive(now);
                // One that loads yet serves nothing, and says so.
                replica.models = Some(models).filter(|models| !models.is_empty());
                if replica.models.is_some() {
                    asked.told();
                }
            }
        }
        self.settle(now);
    }

    /// A sign of life: something came from a replica. Cheap, and need not be told for every byte.
    pub fn alive(&mut self, now: Instant, at: usize) {
        let replica = self.replicas.get_mut(at).and_then(Option::as_mut);
        if replica.is_some_and(|replica| replica.health.alive(now)) {
            self.settle(now);
        }
    }

    /// Calls wait: the replicas are to be looked after, though none is sent.
    pub fn wake(&mut self, now: Instant) {
        self.rounds.active = Some(now);
    }

    /// What to ask of whom, now. Each errand is told once; its answer is [`Placement::saw`].
    pub fn errands(&mut self, now: Instant) -> Errands {
        self.settle(now);
        self.rounds.due(now, self.replicas.iter_mut().flatten(), &mut self.rng)
    }

    /// Those that calls may go to now: they are well, as far as is known, and do not drain.
    pub fn in_choice(&mut self, now: Instant) -> Places {
        self.settle(now);
        self.present(|replica| replica.is_open(now))
    }

    /// A replica for a request that takes no slot: one in the choice, else one that merely asked to be left alone, else any that does not refuse connections. `None`: there is
    /// none.
    pub fn beside(&mut self, now: Instant) -> Option<Placed> {
        let choice = self.in_choice(now);
        let held = |replica: &Replica| !replica.draining && replica.health.is_in_choice();
        let open = [choice, self.present(held), self.present(|replica| !replica.health.refuses())];
        let open = open.into_iter().find(|places| !places.is_empty())?;
        let at = self.choose(now, None, Work::default(), open)?;
        Some(self.replicas.get(at)?.as_ref()?.placed.clone())
    }

    /// Whether a replica is down, or is not known any more: nothing is to be hoped of it for a stream that is silent.
    pub fn is_down(&self, id: ReplicaId) -> bool {
        let replica = self.place_of(id).and_then(|at| self.replicas.get(at)?.as_ref());
        replica.is_none_or(|replica| replica.health.state() == State::Down)
    }

    /// Of those that are out by evidence that may be wrong, those that stay in because more than half of those that do not refuse connections would be out: the least bad.
    fn kept(&self) -> Places {
        let listens = |replica: &&Replica| !replica.draining && !replica.health.refuses();
        let half = self.replicas.iter().flatten().filter(listens).count() / 2;
        let doubted = |replica: &Replica| listens(&replica) && replica.health.is_out();
        let mut doubted: Vec<(usize, &Replica)> =
            self.known().filter(|(_, replica)| doubted(replica)).collect();
        let more = doubted.len().saturating_sub(half);
        doubted.sort_by_key(|(_, replica)| replica.health.badness());
        doubted.into_iter().take(more).map(|(at, _)| at).collect()
    }

    /// A call goes there.
    pub fn sent(&mut self, now: Instant, at: usize, wants: Option<&Wants>, work: Work) -> Option<Parcel> {
        let mut seat = self.seats(now, wants, work, Places::one(at)).pop()?;
        // What others sent there is not known, but how much the caches hold of what comes is.
        seat.cached = seat.cached.max(self.found(work));
        let members = self.members();
        let lacks = wants.and_then(|wants| wants.model.as_deref()).is_some_and(|model| self.lacks(model));
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        self.rounds.active = Some(now);
        self.calls += 1;
        let uncached = work.input.saturating_sub(seat.cached);
        let tokens = work.input.saturating_add(work.output);
        replica.load.send(uncached, work.output, tokens);
        replica.health.sent(self.calls);
        if lacks {
            self.rounds.wanted = Some(now);
        }
        if let Some(wants) = wants {
            let affinity = &wants.affinity;
            self.counts.sent(affinity, members);
            for (index, beginning) in affinity.beginnings.iter().enumerate() {
                let tokens = affinity.tokens(index, work.input);
                self.memory.put(*beginning, &replica.load.cache, tokens, self.calls);
            }
            if let Some(session) = affinity.session {
                self.memory.put(session, &replica.load.cache, work.input, self.calls);
            }
        }
        self.typical += (uncached as f64 - self.typical) / if self.calls == 1 { 1.0 } else { SPAN };
        Some(Parcel {
            at,
            placed: replica.placed.clone(),
            number: self.calls,
            sent: now,
            awaited: Some(uncached),
            accepted: false,
            tokens,
            work: seat.work(work),
            affinity: wants.map(|wants| wants.affinity.clone()).unwrap_or_default(),
            cache: replica.load.cache.name,
        })
    }

    /// Its first token came.
    pub fn first_token(&mut self, now: Instant, parcel: &mut Parcel) {
        let Some(replica) = self.of(parcel) else { return };
        let Some(uncached) = parcel.awaited.take() else { return };
        replica.load.answers(uncached);
        let took = now.saturating_duration_since(parcel.sent).mul_f64(replica.member.weight);
        replica.load.speed.learn(now, parcel.work, took);
        if replica.health.first_token(now, parcel.sent) {
            self.settle(now);
        }
    }

    /// It is over. A replica that drains leaves with its last call: then this is its place, which is free.
    pub fn ended(&mut self, parcel: Parcel) -> Option<usize> {
        let replica = self.of(&parcel)?;
        replica.load.end(parcel.awaited, parcel.tokens);
        replica.health.ended(parcel.number);
        let leaves = replica.draining && replica.load.calls() == 0;
        if parcel.awaited.is_some() && !parcel.accepted {
            let Affinity { session, beginnings, .. } = &parcel.affinity;
            for hash in session.iter().chain(beginnings.iter()) {
                self.memory.take_back(*hash, parcel.cache, parcel.number);
            }
        }
        if leaves && let Some(slot) = self.replicas.get_mut(parcel.at) {
            *slot = None;
        }
        leaves.then_some(parcel.at)
    }

    /// An attempt there was accepted.
    pub fn succeeded(&mut self, now: Instant, parcel: &mut Parcel) {
        parcel.accepted = true;
        let replica = self.of(parcel);
        if replica.is_some_and(|replica| replica.health.succeeded(now, parcel.number, parcel.sent)) {
            self.settle(now);
        }
    }

    /// An attempt there failed. Returns `false` if that says nothing of the replica as it is now.
    pub fn failed(&mut self, now: Instant, parcel: &Parcel, fault: Fault) -> bool {
        let replica = self.replicas.get_mut(parcel.at).and_then(Option::as_mut);
        let Some(replica) = replica.filter(|known| known.placed.id == parcel.placed.id) else { return false };
        let counts = replica.health.failed(now, parcel.number, parcel.sent, fault, &mut self.rng);
        self.settle(now);
        counts
    }

    /// Those that went down since this was last asked: what they have not begun to answer is to be called back.
    pub fn take_fallen(&mut self) -> Places {
        let falls =
            |known: &mut Option<Replica>| known.as_mut().is_some_and(|known| known.health.take_fell());
        self.replicas.iter_mut().enumerate().filter_map(|(at, known)| falls(known).then_some(at)).collect()
    }

    /// The share of its slots that a replica has in force: below 1 while it comes back slowly. As of the last time that [`Placement::in_choice`] was asked.
    pub fn share(&self, now: Instant, at: usize) -> f64 {
        self.replicas
            .get(at)
            .and_then(Option::as_ref)
            .map_or(1.0, |known| known.health.share(now, &self.terms))
    }

    /// When time alone may bring a replica into the choice, or raise its share.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.replicas.iter().flatten().filter_map(|replica| replica.health.next_wake(now, &self.terms)).min()
    }

    /// Where a replica stands in the table.
    pub fn place_of(&self, id: ReplicaId) -> Option<usize> {
        self.known().find(|(_, known)| known.placed.id == id).map(|(at, _)| at)
    }

    /// What a person would want to know.
    pub fn view(&self, now: Instant) -> Vec<ReplicaView> {
        let view = |replica: &Replica| ReplicaView {
            id: replica.placed.id,
            url: replica.placed.url.clone(),
            state: if replica.draining { "draining" } else { replica.health.name() },
            in_choice: replica.is_open(now),
            weight: replica.member.weight,
            share: replica.health.share(now, &self.terms),
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
            replica.health.tick(now, &self.terms);
            if let Some(soon) = replica.health.take_alarmed() {
                replica.asked.urge(now + soon);
            }
            if replica.health.take_ended() {
                self.memory.forget(replica.load.cache.name);
                replica.load.restarted();
                replica.asked.begin();
            }
        }
        let kept = self.kept();
        let whole = self.present(|replica| !replica.draining && replica.health.is_whole());
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            if let Some(replica) = replica {
                let alone = whole.less(Places::one(at)).is_empty();
                replica.health.stands(kept.contains(at), alone);
            }
        }
    }

    fn of(&mut self, parcel: &Parcel) -> Option<&mut Replica> {
        let replica = self.replicas.get_mut(parcel.at)?.as_mut()?;
        (replica.placed.id == parcel.placed.id).then_some(replica)
    }

    fn cache(&self, at: usize) -> Option<Cache> {
        Some(self.replicas.get(at)?.as_ref()?.load.cache)
    }

    fn is_seen(&self, now: Instant, at: usize) -> bool {
        let replica = self.replicas.get(at).and_then(Option::as_ref);
        replica.is_some_and(|replica| replica.load.others(now, self.poll).is_some())
    }

    fn known(&self) -> impl Iterator<Item = (usize, &Replica)> {
        self.replicas.iter().enumerate().filter_map(|(at, known)| Some((at, known.as_ref()?)))
    }

    fn present(&self, wanted: impl Fn(&Replica) -> bool) -> Places {
        self.known().filter(|(_, replica)| wanted(replica)).map(|(at, _)| at).collect()
    }
}
