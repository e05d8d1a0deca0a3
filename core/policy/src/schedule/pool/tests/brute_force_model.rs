//! A brute-force model of a pool: tracks which calls are at which replica, computes the slots and
//! the memory that are left there, and checks each decision of the scheduler against them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::kv::{Forecast, Kv, KvReservation, Progress};
use crate::placement::{Affinity, EngineMetrics, Fault, Observation, ReplicaState};
use crate::retry::RetryPath;
use crate::schedule::{GrantId, WaiterId};

pub(super) const MODELS: [&str; 3] = ["a", "b", "c"];
/// The lengths of answers in tokens. The memory account rounds the predicted end of longer answers.
pub(super) const OUTPUTS: std::ops::Range<u64> = 0..32;
/// The number of tokens by which each hashed prefix of a prompt is longer than the one before.
const BEGINNING: u64 = 64;
/// The mean number of unused tokens in the last memory block of a call.
const HALF_A_BLOCK: u64 = 8;
/// Prefixes are rounded down to whole blocks of this many tokens.
const BLOCK: u64 = 2 * HALF_A_BLOCK;

/// The prefixes of a prompt: the hash of each, and the number of tokens that it adds to the one
/// before.
type Chunks = Arc<[(u64, u64)]>;
pub(super) const TENANTS: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive {
        tenant: usize,
        lane: usize,
        tokens: u64,
        output: u64,
        /// The branch of the prompt, and the maximum number of its hashed prefixes. Prompts of the
        /// same branch have the same prefixes. See [`beginning`].
        begins: (u64, u64),
        model: Option<usize>,
        avoid: usize,
        streams: bool,
        forced: bool,
    },
    Token {
        which: usize,
    },
    Answer {
        which: usize,
    },
    End {
        which: usize,
        fault: Option<Fault>,
        again: bool,
    },
    Leave {
        which: usize,
    },
    Members {
        names: usize,
    },
    Serves {
        which: usize,
        models: usize,
    },
    Told {
        which: usize,
        tokens: u64,
        shares: bool,
    },
    Seen {
        which: usize,
        observation: Observation,
    },
    Pass {
        ms: u64,
    },
    Cap {
        cap: usize,
    },
}

struct Waiting {
    id: WaiterId,
    ticket: Ticket,
}

struct Running {
    grant: Box<Grant>,
    ticket: Ticket,
    place: KvReservation,
    /// The tokens that the call takes of its replica's memory: its input, and its expected output.
    held: (u64, u64),
    /// The prefixes of the call's prompt. At the same replica, calls with equal hashes share the
    /// memory of these prefixes. Empty if the replica does not share prefixes.
    begins: Chunks,
    answered: bool,
    /// The replicas where the call may be retried: those that may take it and where it was not
    /// tried. Empty if the call had been tried before at the replica that it was assigned to. A new
    /// replica at the same index counts as the same.
    others: ReplicaSet,
}

/// The replicas that are available at one moment.
struct AvailableReplicas {
    /// The eligible replicas, in the order of their indices.
    eligible: Vec<ReplicaId>,
    /// The eligible replicas with a free slot.
    open: Vec<ReplicaId>,
}

pub(super) struct PoolModel {
    pub(super) scheduler: Scheduler<u64>,
    pub(super) now: Instant,
    configured: Option<u64>,
    aging: Duration,
    is_adaptive: bool,
    cap: usize,
    waiting: BTreeMap<u64, Waiting>,
    running: Vec<Running>,
    memories: BTreeMap<ReplicaId, Kv>,
    /// The replicas whose memory size is known.
    sized: BTreeSet<ReplicaId>,
    /// The replicas that store a common prefix of several calls only once.
    sharing: BTreeSet<ReplicaId>,
    /// The prefixes that are counted once although several calls have them, each with its replica.
    /// A prefix is added when a call is admitted while a call in flight at the same replica has it.
    shared: BTreeSet<(ReplicaId, u64)>,
    /// The number of tokens of each prefix at a replica, by hash: as in the first call that holds
    /// it.
    lengths: BTreeMap<(ReplicaId, u64), u64>,
    numbers: u64,
    /// The calls in flight that [`Scheduler::next_stranded`] has returned, because their replica
    /// went down.
    preempted: Vec<GrantId>,
}

impl PoolModel {
    pub(super) fn new(settings: &SchedulerSettings, replicas: usize, now: Instant) -> Self {
        // Placement seeds its generator from this thread's, so that each run is the same.
        fastrand::seed(1);
        let mut model = Self {
            scheduler: Scheduler::new(settings, now),
            now,
            configured: settings.kv_tokens,
            aging: settings.aging,
            is_adaptive: settings.adaptive.is_some(),
            cap: settings.limit,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            memories: BTreeMap::new(),
            sized: BTreeSet::new(),
            sharing: BTreeSet::new(),
            shared: BTreeSet::new(),
            lengths: BTreeMap::new(),
            numbers: 0,
            preempted: Vec::new(),
        };
        model.scheduler.set_members(now, &members(0..replicas));
        model.learn();
        model
    }

    pub(super) fn apply(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Arrive { tenant, lane, tokens, output, begins, model, avoid, streams, forced } => {
                let avoided: Vec<_> =
                    (0..8).filter(|name| avoid & (1 << name) != 0).filter_map(|name| self.id(name)).collect();
                let mut asked = wanting(model.map(|model| MODELS[model]), &avoided, now);
                (asked.tenant, asked.lane, asked.streams) =
                    (TENANTS[tenant].into(), Lane::ALL[lane], streams);
                (asked.demand.input, asked.demand.output, asked.demand.exact) = (tokens, output, true);
                let wants = asked.wants.as_mut().expect("always");
                wants.affinity = beginning(begins, tokens);
                self.arrive(asked, forced);
            }
            Event::Token { which } => {
                let count = self.running.len().max(1);
                if let Some(running) = self.running.get_mut(which % count) {
                    self.scheduler.on_first_token(now, &mut running.grant);
                }
            }
            Event::Answer { which } => {
                let count = self.running.len().max(1);
                if let Some(running) = self.running.get_mut(which % count) {
                    running.answered = true;
                    self.scheduler.on_response_head(&mut running.grant);
                }
            }
            Event::End { which, fault, again } => self.end(which, fault, again),
            Event::Leave { which } => {
                if let Some(number) = self.waiting.keys().nth(which % self.waiting.len().max(1)).copied() {
                    let waiting = self.waiting.remove(&number).expect("just seen");
                    assert!(self.scheduler.withdraw(waiting.id));
                }
            }
            Event::Members { names } => {
                self.scheduler.set_members(now, &members((0..8).filter(|name| names & (1 << name) != 0)));
                self.learn();
            }
            Event::Serves { which, models } => {
                let serves = (0..3).filter(|model| models & (1 << model) != 0).map(|of| model(MODELS[of]));
                self.see(which, Observation::Models(serves.collect()));
            }
            Event::Told { which, tokens, shares } => {
                let told = EngineMetrics {
                    kv_tokens: Some(tokens),
                    shares_prefixes: shares,
                    ..EngineMetrics::default()
                };
                self.see(which, Observation::Metrics(told));
            }
            Event::Seen { which, observation } => self.see(which, observation),
            Event::Pass { ms } => self.pass(Duration::from_millis(ms)),
            Event::Cap { cap } => {
                self.cap = cap;
                self.scheduler.set_limit(cap);
            }
        }
        self.settle();
        self.check();
    }

    pub(super) fn finish(mut self) {
        while let Some(number) = self.waiting.keys().next().copied() {
            let waiting = self.waiting.remove(&number).expect("just seen");
            assert!(self.scheduler.withdraw(waiting.id));
        }
        while !self.running.is_empty() {
            self.end(0, None, false);
        }
        assert_empty(&self.scheduler, self.now);
    }

    fn arrive(&mut self, ticket: Ticket, forced: bool) {
        self.numbers += 1;
        self.scheduler.tick(self.now);
        let room = self.room();
        if forced {
            let (grant, _) = self.scheduler.force(self.now, &ticket);
            if grant.placed().is_some() {
                self.admitted(grant, ticket);
            } else {
                assert!(self.scheduler.replicas(self.now).is_empty(), "there was a replica");
                self.scheduler.release(self.now, grant);
            }
            return;
        }
        let held = [self.held(), self.kept(self.numbers, &ticket, &room)].concat();
        let free = self.free(&ticket, &room, &held);
        let ejected = self.ejected();
        match self.scheduler.try_admit(self.now, &ticket) {
            Ok(Some(grant)) => {
                self.assert_well_placed(&grant, &ticket, &free, &ejected);
                self.admitted(grant, ticket);
            }
            Ok(None) => {
                assert!(free.is_empty(), "{ticket:?} could go to {free:?}");
                let id = self.scheduler.enqueue(self.now, ticket.clone(), self.numbers);
                self.waiting.insert(self.numbers, Waiting { id, ticket });
            }
            Err(refusal) => assert_eq!(refusal.reason, Reason::TooLarge),
        }
    }

    fn end(&mut self, which: usize, fault: Option<Fault>, again: bool) {
        if self.running.is_empty() {
            return;
        }
        let mut running = self.running.swap_remove(which % self.running.len());
        let id = running.grant.placed().expect("placed").id;
        running.grant.sent = true;
        match fault {
            Some(fault) => {
                let path = self.scheduler.on_replica_failure(self.now, &mut running.grant, fault);
                let eligible = self.eligible();
                let expected = match fault {
                    Fault::Full(_) | Fault::Limited(_) | Fault::ConnectRefused | Fault::Unauthenticated
                        if !running.others.and(self.places(&eligible)).is_empty() =>
                    {
                        RetryPath::OtherReplica
                    }
                    Fault::Full(_) if !eligible.is_empty() => RetryPath::AllReplicasFull,
                    Fault::Rejected | Fault::Unauthenticated | Fault::Unanswered => RetryPath::Backoff,
                    _ if !eligible.is_empty() => RetryPath::Backoff,
                    Fault::Limited(_) => RetryPath::AfterCoolDown,
                    _ => RetryPath::AfterOutage,
                };
                assert_eq!(path, expected, "{fault:?}");
            }
            None => {
                self.scheduler.on_success(self.now, &mut running.grant);
            }
        }
        let queue_tag = running.grant.queue_tag();
        self.preempted.retain(|called| *called != running.grant.id);
        self.memories.get_mut(&id).expect("it has a call").release(running.place);
        let held: BTreeSet<u64> = self.begun(id);
        self.shared.retain(|(at, hash)| *at != id || held.contains(hash));
        self.lengths.retain(|(at, hash), _| *at != id || held.contains(hash));
        self.scheduler.release(self.now, running.grant);
        self.learn();
        self.settle();
        if again && fault.is_some() {
            let mut wants = running.ticket.wants.clone().expect("always");
            wants.avoid.push(id);
            self.arrive(Ticket { queue_tag: Some(queue_tag), wants: Some(wants), ..running.ticket }, false);
        }
    }

    fn see(&mut self, which: usize, observation: Observation) {
        let views = self.scheduler.replicas(self.now);
        let Some(view) = views.get(which % views.len().max(1)) else { return };
        if let Observation::Metrics(EngineMetrics { kv_tokens: Some(tokens), shares_prefixes, .. }) =
            &observation
        {
            self.set_memory(view.id, *tokens, false);
            self.sharing.remove(&view.id);
            self.sharing.extend(shares_prefixes.then_some(view.id));
        }
        self.scheduler.observe(self.now, view.id, observation);
        self.fall();
    }

    /// Takes all stranded calls, and checks that each of them has no response head and was not
    /// returned before.
    fn fall(&mut self) {
        while let Some(id) = self.scheduler.next_stranded() {
            let running = self.running.iter().find(|running| running.grant.id == id).expect("in flight");
            assert!(!running.answered && !self.preempted.contains(&id));
            self.preempted.push(id);
        }
    }

    /// Lets time pass in steps of at most 7 ms. Checks that no call is dispatched before the time
    /// that [`Scheduler::next_wake`] returned, unless a replica is in slow start.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let wake = self.scheduler.next_wake(self.now);
            assert!(wake.is_none_or(|wake| wake > self.now), "all that is due was done");
            self.now = (self.now + ms(7)).min(end);
            // The share of a starting replica grows continuously, and is read now and then.
            let grows =
                self.scheduler.replicas(self.now).iter().any(|view| view.state == ReplicaState::Starting);
            let early = wake.is_none_or(|wake| self.now < wake) && !grows;
            let went = self.settle();
            assert!(went == 0 || !early, "{went} went, and {wake:?} was when to ask");
            self.check();
        }
    }

    /// Calls the methods that a driver calls after each event, and checks each call that is
    /// dispatched. Returns the number of dispatched calls.
    fn settle(&mut self) -> usize {
        let mut went = 0;
        assert!(self.scheduler.expired(self.now).is_empty(), "all have an hour");
        self.fall();
        loop {
            let (room, held, ejected) = (self.room(), self.held(), self.ejected());
            let Some((number, grant)) = self.scheduler.next(self.now) else { return went };
            let kept = self.kept(number, &self.waiting[&number].ticket, &room);
            let waiting = self.waiting.remove(&number).expect("each goes once");
            let free = self.free(&waiting.ticket, &room, &[held, kept].concat());
            self.assert_well_placed(&grant, &waiting.ticket, &free, &ejected);
            self.admitted(grant, waiting.ticket);
            went += 1;
        }
    }

    fn admitted(&mut self, grant: Box<Grant>, ticket: Ticket) {
        let id = grant.placed().expect("placed").id;
        let mut others = self.serving(&ticket);
        let avoid = &ticket.wants.as_ref().expect("always").avoid;
        others.retain(|other| *other != id && !avoid.contains(other) && !avoid.contains(&id));
        let others = self.places(&others);
        let memory = self.memories.get_mut(&id).expect("kept for each");
        let held = in_memory(&ticket, memory.capacity());
        let affinity =
            ticket.wants.as_ref().filter(|_| self.sharing.contains(&id)).map(|wants| &wants.affinity);
        let affinity = affinity.cloned().unwrap_or_default();
        let forecast = Forecast::default();
        let begins: Chunks = affinity.prefix.chunks(held.0, BLOCK).collect();
        let place = memory.admit(&ticket.demand, forecast, affinity.prefix, Progress::default());
        let begun = self.begun(id);
        for (hash, tokens) in begins.iter() {
            if begun.contains(hash) {
                self.shared.insert((id, *hash));
            }
            self.lengths.entry((id, *hash)).or_insert(*tokens);
        }
        self.running.push(Running { grant, ticket, place, held, begins, answered: false, others });
    }

    /// Returns the hashes of the prefixes of the calls in flight at a replica.
    fn begun(&self, id: ReplicaId) -> BTreeSet<u64> {
        let there =
            self.running.iter().filter(|running| running.grant.placed().is_some_and(|at| at.id == id));
        there.flat_map(|running| running.begins.iter().map(|(hash, _)| *hash)).collect()
    }

    fn check(&mut self) {
        let now = self.now;
        assert_eq!(self.scheduler.view(now).in_flight, self.running.len());
        assert_eq!(self.scheduler.view(now).waiting, self.waiting.len());
        for view in self.scheduler.replicas(now) {
            let here = self
                .running
                .iter()
                .filter(|running| running.grant.placed().is_some_and(|at| at.id == view.id))
                .count();
            let slots = view.slots.expect("kept");
            assert_eq!((slots.in_flight, view.requests), (here, here));
            let known = self.sized.get(&view.id).map(|id| self.memories[id].view());
            assert_eq!(slots.kv, known);
        }
        let room = self.room();
        let held = self.held();
        let numbers: Vec<_> = self.waiting.keys().copied().collect();
        for number in numbers {
            let (id, ticket) = (self.waiting[&number].id, self.waiting[&number].ticket.clone());
            let why = self.scheduler.explain(now, id).expect("it waits");
            if why.rule == Rule::TenantShare {
                // The model of the scheduler decides which tenants are held. See `tests/oracle`.
                assert!(self.is_adaptive, "tenants share only adaptive limits");
                let of_tenant = |call: &Running| call.ticket.tenant == ticket.tenant;
                assert!(self.running.iter().any(of_tenant), "{ticket:?} is held without calls in flight");
                continue;
            }
            let fits = self.fits(&ticket, &room);
            let held = [&held[..], &self.kept(number, &ticket, &room)].concat();
            let free = self.free(&ticket, &room, &held);
            assert!(free.is_empty(), "{ticket:?} could go to {free:?}, {held:?} is held: {why:?}");
            let is_closed = self.eligible().is_empty();
            match why.rule {
                Rule::Outage | Rule::CoolDown => assert!(is_closed),
                Rule::Slots | Rule::FirstTokens | Rule::Replicas | Rule::Kv => {
                    assert!(fits.is_empty() && !is_closed)
                }
                Rule::Reserved | Rule::Turn => assert!(!fits.is_empty()),
                other => panic!("{other:?} is no rule here"),
            }
        }
    }

    /// Returns the replica whose memory is kept for the first call of the line of `ticket` (the
    /// waiting calls of the same tenant and lane), or an empty list if none is kept. `number` is
    /// the number of the call with this ticket.
    ///
    /// A replica is kept if the first call has waited for the ageing time, is not the call itself,
    /// and has a free slot but too little memory at the replicas that may take it. The eligible
    /// replica with the most memory left for the first call is kept.
    fn kept(&self, number: u64, ticket: &Ticket, room: &AvailableReplicas) -> Vec<ReplicaId> {
        let line = |of: &Ticket| (of.tenant.clone(), of.lane);
        let of_line = self.waiting.iter().filter(|(_, other)| line(&other.ticket) == line(ticket));
        let head = of_line.min_by_key(|(number, other)| (other.ticket.queued_at, other.id.number, **number));
        let Some((_, Waiting { ticket: head, .. })) =
            head.filter(|(head, other)| **head != number && self.is_aged(&other.ticket))
        else {
            return Vec::new();
        };
        let may = self.serving(head);
        if !may.iter().any(|id| room.open.contains(id)) {
            return Vec::new();
        }
        let need = head.demand.input;
        let could = |id: &ReplicaId| self.memories.get(id).is_none_or(|memory| need <= memory.capacity());
        let ever = room.eligible.iter().rev().filter(|id| may.contains(id) && could(id));
        let left = ever.map(|id| (*id, self.left(*id, head)));
        let nearest = left.max_by(|(_, left), (_, other)| left.total_cmp(other));
        nearest.filter(|(_, left)| *left < 0.0).map(|(id, _)| id).into_iter().collect()
    }

    /// Returns how many tokens of a replica's memory would be left at the peak of use if the call
    /// was admitted, computed token by token. Negative if the call does not fit, infinite if the
    /// size of the memory is not known.
    fn left(&self, id: ReplicaId, ticket: &Ticket) -> f64 {
        let Some(capacity) = self.sized.get(&id).map(|id| self.memories[id].capacity()) else {
            return f64::INFINITY;
        };
        let is_there = |running: &&Running| running.grant.placed().is_some_and(|placed| placed.id == id);
        let there = self.running.iter().filter(is_there);
        let mut all: Vec<_> = there.map(|running| (running.held, running.begins.clone())).collect();
        if all.is_empty() {
            return if ticket.demand.input <= capacity { capacity as f64 } else { f64::NEG_INFINITY };
        }
        let held = in_memory(ticket, capacity);
        let begins = ticket.wants.as_ref().expect("always").affinity.prefix.chunks(held.0, BLOCK);
        let begins: Chunks = begins.filter(|_| self.sharing.contains(&id)).collect();
        let begun = self.begun(id);
        let mut shared: BTreeSet<u64> =
            begins.iter().map(|(hash, _)| *hash).filter(|hash| begun.contains(hash)).collect();
        shared.extend(self.shared.iter().filter(|(at, _)| *at == id).map(|(_, hash)| hash));
        let length = |hash: &u64| self.lengths[&(id, *hash)];
        all.push((held, begins));
        // Prefixes that more than one call has held are counted once. All other tokens are counted
        // for each call.
        let at = |t: u64| -> u64 {
            let there = all.iter().filter(|((_, left), _)| *left >= t);
            let alone = |((input, _), begins): &((u64, u64), Chunks)| {
                let in_common = begins.iter().filter(|(hash, _)| shared.contains(hash));
                input - in_common.map(|(hash, tokens)| length(hash).min(*tokens)).sum::<u64>()
            };
            let each = there.map(|call| alone(call) + HALF_A_BLOCK + t).sum::<u64>();
            each + shared.iter().map(length).sum::<u64>()
        };
        let peak = (1..=OUTPUTS.end).map(at).max().expect("moments");
        capacity as f64 - peak as f64
    }

    fn is_aged(&self, ticket: &Ticket) -> bool {
        self.now - ticket.queued_at >= self.aging
    }

    /// Returns the replica whose memory the scheduler reserves for the first waiting call in
    /// dispatch order, or an empty list if none is reserved. Checks that this call has waited for
    /// the ageing time.
    fn held(&mut self) -> Vec<ReplicaId> {
        let _ = self.scheduler.selector(self.now).pick();
        let Some(hold) = self.scheduler.order.reservation else { return Vec::new() };
        let waiter = self.scheduler.queue.waiters.get(hold.call).expect("it waits");
        assert!(self.is_aged(&waiter.ticket));
        let pool = self.scheduler.capacity.upstream.as_pool().expect("a pool");
        hold.resources
            .at
            .and_then(|at| pool.replica(at))
            .map(|replica| replica.placed.id)
            .into_iter()
            .collect()
    }

    fn room(&mut self) -> AvailableReplicas {
        let eligible = self.eligible();
        let views = self.scheduler.replicas(self.now);
        let full = self.running.len() >= self.cap;
        let mut open = Vec::new();
        for view in views.into_iter().filter(|view| eligible.contains(&view.id)) {
            let slots = view.slots.expect("kept");
            let awaits =
                slots.adaptive.is_some_and(|found| found.limit.awaiting >= found.limit.awaiting_limit);
            if slots.in_flight < slots.limit && !awaits && !full {
                open.push(view.id);
            }
        }
        AvailableReplicas { eligible, open }
    }

    /// Returns the replicas that may take the call and have a slot and memory for it.
    fn fits(&self, ticket: &Ticket, room: &AvailableReplicas) -> Vec<ReplicaId> {
        let mut fits = self.serving(ticket);
        fits.retain(|id| room.open.contains(id) && self.left(*id, ticket) >= 0.0);
        fits
    }

    /// Returns the replicas that [`PoolModel::fits`] returns without those in `held`, whose memory
    /// is reserved for other calls. A call without input needs no memory and may use these, too.
    fn free(&self, ticket: &Ticket, room: &AvailableReplicas, held: &[ReplicaId]) -> Vec<ReplicaId> {
        let mut free = self.fits(ticket, room);
        free.retain(|id| ticket.demand.input == 0 || !held.contains(id));
        free
    }

    /// Returns the replicas that may take the call, whether they are eligible or not. These are the
    /// replicas that are known to serve its model and do not refuse connections. If there are none,
    /// they are the replicas of which the models are not known and that do not refuse connections,
    /// then the replicas that are known to serve the model, or else all replicas. Draining replicas
    /// are excluded.
    fn serving(&self, ticket: &Ticket) -> Vec<ReplicaId> {
        let wants = ticket.wants.as_ref().expect("always");
        let views = self.scheduler.replicas(self.now);
        let present = || views.iter().filter(|view| view.state != ReplicaState::Draining);
        // Replicas known to serve the model, otherwise those of which it is not known.
        let serves = |view: &&crate::placement::ReplicaView, unknown: bool| {
            let model = wants.model.as_deref();
            model.is_none_or(|model| match &view.models {
                Some(all) => all.iter().any(|known| **known == *model),
                None => unknown,
            })
        };
        let refusing = self.refusing();
        let listens = |view: &&crate::placement::ReplicaView| !refusing.contains(&view.id);
        let known: Vec<_> = present().filter(|view| serves(view, false)).collect();
        let mut all: Vec<_> = known.iter().copied().filter(listens).map(|view| view.id).collect();
        if all.is_empty() && wants.model.is_some() {
            all = present().filter(|view| serves(view, true)).filter(listens).map(|view| view.id).collect();
        }
        if all.is_empty() || wants.model.is_none() {
            all = known.iter().map(|view| view.id).collect();
        }
        if all.is_empty() {
            all = present().map(|view| view.id).collect();
        }
        all
    }

    fn eligible(&self) -> Vec<ReplicaId> {
        self.replicas_of(|placement, now| placement.eligible(now))
    }

    fn ejected(&self) -> Vec<ReplicaId> {
        self.replicas_of(|placement, now| {
            placement.eligible(now);
            placement.ejected()
        })
    }

    fn refusing(&self) -> Vec<ReplicaId> {
        self.replicas_of(|placement, now| {
            placement.eligible(now);
            placement.refusing()
        })
    }

    /// Returns the replicas of the set that a function returns for a copy of the placement.
    fn replicas_of(&self, set: impl Fn(&mut Placement, Instant) -> ReplicaSet) -> Vec<ReplicaId> {
        let pool = self.scheduler.capacity.upstream.as_pool().expect("a pool");
        let replicas = set(&mut pool.placement.clone(), self.now);
        replicas.iter().filter_map(|at| Some(pool.replica(at)?.placed.id)).collect()
    }

    /// Checks that the call was assigned to one of the `free` replicas. If it can be, it is one
    /// where the call was not tried, and among those one that is not `ejected`. With an adaptive
    /// limit, a tenant above its share may not use all `free` replicas.
    fn assert_well_placed(&self, grant: &Grant, ticket: &Ticket, free: &[ReplicaId], ejected: &[ReplicaId]) {
        let at = grant.placed().expect("placed").id;
        assert!(free.contains(&at), "{at:?} was none of {free:?}");
        let avoid = &ticket.wants.as_ref().expect("always").avoid;
        assert!(!avoid.contains(&at) || free.iter().all(|id| avoid.contains(id)), "{at:?}, of {free:?}");
        let is_worse = |id: &ReplicaId| ejected.contains(id) || avoid.contains(id) && !avoid.contains(&at);
        let is_last_choice = ejected.contains(&at) && !self.is_adaptive;
        assert!(!is_last_choice || free.iter().all(is_worse), "{at:?} is ejected, of {free:?}");
    }

    fn places(&self, ids: &[ReplicaId]) -> ReplicaSet {
        let pool = self.scheduler.capacity.upstream.as_pool().expect("a pool");
        ids.iter().filter_map(|id| pool.placement.index_of(*id)).collect()
    }

    fn id(&self, name: usize) -> Option<ReplicaId> {
        self.scheduler.replicas(self.now).iter().find(|view| *view.url == url(name)).map(|view| view.id)
    }

    /// Adds a memory account for each new replica, and removes the accounts of replicas that have
    /// left.
    fn learn(&mut self) {
        let present: Vec<_> = self.scheduler.replicas(self.now).iter().map(|view| view.id).collect();
        self.memories.retain(|id, _| present.contains(id));
        self.sized.retain(|id| present.contains(id));
        for id in present {
            self.memories.entry(id).or_insert_with(|| Kv::new(1 << 40, 0.0));
            self.configured.into_iter().for_each(|tokens| self.set_memory(id, tokens, true));
        }
    }

    fn set_memory(&mut self, id: ReplicaId, tokens: u64, told: bool) {
        if self.configured.is_some() && !told {
            return;
        }
        self.memories.get_mut(&id).expect("kept for each").resize(tokens, 0.0);
        self.sized.insert(id);
    }
}

/// Returns the prefix hashes of a prompt of `tokens` tokens of one byte each: at most `depth`
/// prefixes, each [`BEGINNING`] tokens longer than the one before. The first two are the same for
/// all prompts, the others for all prompts of the same `branch`.
fn beginning((branch, depth): (u64, u64), tokens: u64) -> Affinity {
    let depth = depth.min(tokens.saturating_sub(1) / BEGINNING);
    let hash = |nth| if nth < 2 { nth } else { 10 * branch + nth };
    Affinity::from_hashes_with_lengths(None, (0..depth).map(|nth| (hash(nth), BEGINNING * (nth + 1))), tokens)
}

/// Returns the tokens that a call takes of a memory with this capacity: its input, at most
/// `capacity`, and its expected output, at least 1.
fn in_memory(ticket: &Ticket, capacity: u64) -> (u64, u64) {
    (ticket.demand.input.min(capacity), ticket.demand.output.max(1))
}
