//! A call as the layers know it: who asks what of which target, until when, and what happened so far.

mod replicas;
mod twin;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::admission::{Cause, Holders, Permit};
use crate::clock;
use crate::config::{DEFAULT_DEADLINE, Mode};
use crate::context::{Asking, Crowd, Lane, TaskId, Timeouts};
use crate::cooldown::Hold;
use crate::duration;
use crate::estimate::Demand;
use crate::fairness::Tag;
use crate::kv::Progress;
use crate::observe::{Attempt, TenantMetrics};
use crate::placement::{Affinity, Placed, ReplicaId, Wants};
use crate::schedule::{Ticket, WaiterId, Why};
use crate::target::{SharedCooldowns, Target};
use crate::wire::Usage;
use crate::wire::request::{RequestFacts, Route};

/// One call, shared by the layers through the request's extensions. Holds neither headers nor body.
#[derive(Clone)]
pub struct Call(Arc<Inner>);

struct Inner {
    id: u64,
    mode: Mode,
    target: Arc<Target>,
    metrics: Arc<TenantMetrics>,
    facts: RequestFacts,
    tenant: Arc<str>,
    lane: Lane,
    timeouts: Timeouts,
    queued_at: Instant,
    deadline: Instant,
    own_deadline: bool,
    /// The key of its credential and model, if it shares its target with others.
    shared_key: Option<u64>,
    /// The target that refused it before this one.
    refused_by: Option<Arc<str>>,
    label: Option<Arc<str>>,
    holder: Option<(Arc<Holders>, TaskId)>,
    /// What it shares with others, where its target is a pool.
    affinity: Option<Affinity>,
    /// The calls that it belongs with.
    crowd: Option<Crowd>,
    story: Mutex<Story>,
    /// Whether it is a second try of a call whose first goes on: it takes a free slot at another replica, or none.
    is_twin: bool,
    /// The twin that came first, and goes on in its place.
    winner: OnceLock<Call>,
}

impl Inner {
    /// Who asks what, until when, as it is; with another story.
    fn again(&self, story: Story) -> Self {
        Self {
            id: self.id,
            mode: self.mode,
            target: self.target.clone(),
            metrics: self.metrics.clone(),
            facts: self.facts.clone(),
            tenant: self.tenant.clone(),
            lane: self.lane,
            timeouts: self.timeouts,
            queued_at: self.queued_at,
            deadline: self.deadline,
            own_deadline: self.own_deadline,
            shared_key: self.shared_key,
            refused_by: self.refused_by.clone(),
            label: self.label.clone(),
            holder: self.holder.clone(),
            affinity: self.affinity.clone(),
            crowd: self.crowd.clone(),
            story: Mutex::new(story),
            is_twin: false,
            winner: OnceLock::new(),
        }
    }
}

/// What changes while the call lives.
#[derive(Default)]
struct Story {
    attempts: Vec<Attempt>,
    charged: Option<Tag>,
    /// Its place in its target's queue, while it has one.
    waiter: Option<WaiterId>,
    /// What its waits so far have taken of its wait budget, which is one for all of them.
    spent: Duration,
    hold: Option<Hold>,
    /// Whether an attempt failed in a way that may be the call's own doing.
    has_failed: bool,
    last_failure: Option<&'static str>,
    /// Whether its request can be sent once more.
    spare: bool,
    called_back: Option<Cause>,
    usage: Option<Usage>,
    progress: Progress,
    exact_input: Option<u64>,
    /// What its latest attempt was expected to take, at the door.
    demand: Option<Demand>,
    /// The replica that has its present attempt.
    placed: Option<Placed>,
    /// Replicas that failed it: its next attempt goes to others, while those have room.
    tried: Vec<ReplicaId>,
}

/// So many attempts of a call are remembered: its first, and the last.
const REMEMBERED: usize = 100;

/// What a call is identified by; see [`Call::new`].
pub(crate) struct Identity {
    pub(crate) mode: Mode,
    pub(crate) target: Arc<Target>,
    /// The key of the call's credential and model, if it shares its target with others.
    pub(crate) shared_key: Option<u64>,
    pub(crate) facts: RequestFacts,
    pub(crate) tenant: Arc<str>,
    pub(crate) lane: Lane,
    pub(crate) timeouts: Timeouts,
    pub(crate) deadline: Option<Instant>,
    /// The caller's own name for it.
    pub(crate) label: Option<Arc<str>>,
    /// The task that makes it, and the book of who holds slots; none where there are no tools.
    pub(crate) holder: Option<(Arc<Holders>, TaskId)>,
    /// What it shares with others, where its target is a pool.
    pub(crate) affinity: Option<Affinity>,
    /// The calls that it belongs with.
    pub(crate) crowd: Option<Crowd>,
}

/// Tells calls of this process apart, and waits for tools.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Call {
    pub(crate) fn new(identity: Identity, now: Instant) -> Self {
        let Identity {
            mode,
            target,
            shared_key,
            facts,
            tenant,
            lane,
            timeouts,
            deadline,
            label,
            holder,
            affinity,
            crowd,
        } = identity;
        let timeouts = timeouts.limited();
        let longest = duration::after(now, longest(target.config().deadline, timeouts.read));
        target.called();
        Self(Arc::new(Inner {
            id: number(),
            mode,
            metrics: target.metrics().tenant(&tenant),
            facts,
            tenant,
            lane,
            timeouts,
            queued_at: now,
            deadline: deadline.map_or(longest, |own| own.min(longest)),
            own_deadline: deadline.is_some() || target.config().deadline != DEFAULT_DEADLINE,
            target,
            shared_key,
            refused_by: None,
            label,
            holder,
            affinity,
            crowd,
            story: Mutex::default(),
            is_twin: false,
            winner: OnceLock::new(),
        }))
    }

    /// The same call at another target, since its own refused it: as old as it is, until when it must end, and no more patient for a slot.
    pub(crate) fn elsewhere(&self, target: Arc<Target>, model: Option<Arc<str>>, now: Instant) -> Self {
        target.called();
        let mut call = self.0.again(Story::default());
        let waited = now.saturating_duration_since(call.queued_at);
        call.timeouts.pool = call.timeouts.pool.map(|pool| pool.saturating_sub(waited));
        call.metrics = target.metrics().tenant(&call.tenant);
        call.facts.model = model.or(call.facts.model.take());
        call.refused_by = Some(call.target.name().clone());
        // A pool is told the model at least.
        call.affinity =
            call.affinity.take().or_else(|| target.config().pool.as_ref().map(|_| Affinity::default()));
        call.target = target;
        // A fallback is a configured target, which is never shared.
        call.shared_key = None;
        Self(Arc::new(call))
    }

    /// Tells calls of this process apart.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The target it goes to.
    pub fn target(&self) -> &Arc<Target> {
        &self.0.target
    }

    /// Returns the cool-downs of a shared target and this call's key, or `None`.
    pub(crate) fn shared(&self) -> Option<(&SharedCooldowns, u64)> {
        self.0.target.shared().zip(self.0.shared_key)
    }

    /// What its request says.
    pub fn facts(&self) -> &RequestFacts {
        &self.0.facts
    }

    /// The target that refused it before it came to this one, as its fallback.
    pub(crate) fn refused_by(&self) -> Option<&Arc<str>> {
        self.0.refused_by.as_ref()
    }

    /// The fairness key.
    pub fn tenant(&self) -> &Arc<str> {
        &self.0.tenant
    }

    /// The priority class.
    pub fn lane(&self) -> Lane {
        self.0.lane
    }

    /// The caller's own name for it.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.0.label.as_ref()
    }

    /// The book of who holds slots, and its own task; where tools are configured.
    pub(crate) fn holder(&self) -> Option<(&Arc<Holders>, TaskId)> {
        self.0.holder.as_ref().map(|(holders, task)| (holders, *task))
    }

    /// It asks for a slot: its crowd counts it until what is returned is dropped.
    pub(crate) fn asks(&self) -> Option<Asking> {
        self.0.crowd.as_ref().map(Crowd::asks)
    }

    /// When the user asked.
    pub fn queued_at(&self) -> Instant {
        self.0.queued_at
    }

    /// When all of it must have ended.
    pub fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// Whether somebody said until when: its caller, or who configured its target.
    pub(crate) fn has_own_deadline(&self) -> bool {
        self.0.own_deadline
    }

    /// What its own client allows.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    /// Whether it runs a model, and so needs a slot.
    pub fn is_inference(&self) -> bool {
        self.0.facts.route == Route::Inference
    }

    /// Whether the gate acts on it, or only looks.
    pub fn is_enforced(&self) -> bool {
        self.0.mode == Mode::Enforce
    }

    pub(crate) fn metrics(&self) -> &TenantMetrics {
        &self.0.metrics
    }

    /// The longest from sending an attempt to its head. What does not stream has no first token: its head comes with the whole answer.
    pub(crate) fn head_limit(&self) -> Option<Duration> {
        let own = self.0.target.config().first_token.filter(|_| self.is_enforced() && self.0.facts.stream);
        earlier(own, self.0.timeouts.read)
    }

    /// For how much longer anybody can wait for this: until the deadline, or until its longest permitted silence, from now.
    pub fn patience(&self) -> Duration {
        let left = self.0.deadline.saturating_duration_since(clock::now());
        match (self.head_limit(), self.idle_limit()) {
            (Some(head), Some(idle)) => left.min(head.max(idle)),
            _ => left,
        }
    }

    /// The longest silence between chunks.
    pub(crate) fn idle_limit(&self) -> Option<Duration> {
        earlier(self.0.target.config().idle.filter(|_| self.is_enforced()), self.0.timeouts.read)
    }

    /// What the next attempt says at the door: the age of the call and, of a retry, its place.
    pub(crate) fn ticket(&self) -> Ticket {
        let config = self.0.target.config();
        let of_lane = config.lanes.get(self.0.lane as usize).and_then(|lane| lane.wait);
        let wait = earlier(of_lane.or(config.wait), self.0.timeouts.pool);
        let demand = self.demand();
        let exact = demand.exact.then_some(demand.input);
        let expected = self.0.target.expected();
        let forecast = expected.forecast(&self.0.facts, &self.0.tenant, exact);
        // From here on nothing of the call may be asked: its story is taken.
        let mut story = self.story();
        story.demand = Some(demand);
        Ticket {
            tenant: self.0.tenant.clone(),
            lane: self.0.lane,
            queued_at: self.0.queued_at,
            deadline: self.0.deadline,
            wait: wait.map(|wait| wait.saturating_sub(story.spent)),
            has_failed: story.has_failed,
            demand,
            forecast,
            streams: self.0.facts.stream,
            cost: expected.cost(&demand),
            wants: self.0.affinity.as_ref().map(|affinity| {
                Box::new(Wants {
                    model: self.0.facts.model.clone(),
                    affinity: affinity.clone(),
                    avoid: story.tried.clone(),
                })
            }),
            charged: story.charged,
        }
    }

    /// A new attempt asks for a slot.
    pub(crate) fn attempt_queued(&self, now: Instant) {
        let attempts = &mut self.story().attempts;
        if attempts.len() >= REMEMBERED {
            // A pool without room turns a patient call away many times.
            attempts.remove(1);
        }
        attempts.push(Attempt::queued(now));
    }

    /// It stands in the queue, there.
    pub(crate) fn stands_at(&self, waiter: WaiterId) {
        self.story().waiter = Some(waiter);
    }

    /// Returns why the call waits, in the queue or in a cool-down; `None` if it does not.
    pub(crate) fn why(&self) -> Option<Why> {
        if let Some(why) = self.shared().and_then(|(shared, key)| shared.explain(key, self.queued_at())) {
            return Some(why);
        }
        let waiter = self.story().waiter?;
        self.0.target.admission().explain(waiter)
    }

    /// What its present attempt has come to.
    pub(crate) fn present(&self) -> Option<Attempt> {
        self.story().attempts.last().cloned()
    }

    /// Charges the wait for a slot that the call gives back unused to its wait budget.
    pub(crate) fn waited(&self, permit: &Permit) {
        self.story().spent += permit.spent();
    }

    /// It got one.
    pub(crate) fn attempt_admitted(&self, permit: &Permit) {
        let now = permit.admitted_at();
        let mut story = self.story();
        story.charged = permit.charged();
        story.spent += permit.spent();
        story.progress = permit.progress();
        story.usage = None;
        story.placed = permit.placed().cloned();
        let replica = story.placed.as_ref().map(|placed| placed.url.clone());
        if let Some(attempt) = story.attempts.last_mut() {
            attempt.admitted_at = Some(now);
            attempt.in_flight = Some(permit.in_flight());
            attempt.replica = replica;
        }
    }

    /// Writes to the present attempt's record.
    pub(crate) fn attempt(&self, write: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.story().attempts.last_mut() {
            write(attempt);
        }
    }

    /// Whether its present attempt asks for a slot.
    pub(crate) fn is_queued(&self) -> bool {
        let story = self.story();
        story
            .attempts
            .last()
            .is_some_and(|attempt| attempt.admitted_at.is_none() && attempt.released_at.is_none())
    }

    /// Whether it stands in the queue, or backs off: no attempt of it is in flight.
    pub(crate) fn is_waiting(&self) -> bool {
        self.story()
            .attempts
            .last()
            .is_none_or(|attempt| attempt.admitted_at.is_none() || attempt.released_at.is_some())
    }

    /// The present attempt, if it was sent, and what the provider counted of it.
    pub(crate) fn taken(&self) -> Option<(Attempt, Option<Usage>)> {
        let story = self.story();
        let last = story.attempts.last().filter(|attempt| attempt.sent_at.is_some())?;
        Some((last.clone(), story.usage))
    }

    /// When the present attempt was sent, or the call was made.
    pub(crate) fn sent_at(&self) -> Instant {
        let story = self.story();
        story.attempts.last().and_then(|attempt| attempt.sent_at).unwrap_or(self.0.queued_at)
    }

    /// What its latest attempt was expected to take when it came to the door; what would be expected now, if none did.
    pub(crate) fn expected(&self) -> Demand {
        let told = self.story().demand;
        told.unwrap_or_else(|| self.demand())
    }

    /// What it is expected to take, now.
    fn demand(&self) -> Demand {
        let demand = self.0.target.expected().demand(&self.0.facts, &self.0.tenant);
        match self.exact_input() {
            Some(input) => Demand { input, exact: true, ..demand },
            None => demand,
        }
    }

    /// How many attempts of it were sent.
    pub(crate) fn sent(&self) -> usize {
        self.story().attempts.iter().filter(|attempt| attempt.sent_at.is_some()).count()
    }

    /// Takes the attempts' records out, at the end.
    pub(crate) fn take_attempts(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.story().attempts)
    }

    /// What the provider counted, of the present attempt.
    pub(crate) fn set_usage(&self, usage: Usage) {
        self.story().usage = Some(usage);
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        self.story().usage
    }

    /// How far the present attempt's answer has come.
    pub(crate) fn progress(&self) -> Progress {
        self.story().progress.clone()
    }

    /// Input tokens, counted before it is sent.
    pub(crate) fn set_exact_input(&self, tokens: u64) {
        self.story().exact_input = Some(tokens);
    }

    /// Its input tokens, where they were counted and not estimated.
    pub fn exact_input(&self) -> Option<u64> {
        self.story().exact_input
    }

    /// Whether the present attempt's request can be sent once more.
    pub(crate) fn set_spare(&self, spare: bool) {
        self.story().spare = spare;
    }

    pub(crate) fn has_spare(&self) -> bool {
        self.story().spare
    }

    /// The present attempt gave its slot up, to whom it belongs, or left a replica that is down.
    pub(crate) fn set_called_back(&self, cause: Cause) {
        self.story().called_back = Some(cause);
    }

    pub(crate) fn take_called_back(&self) -> Option<Cause> {
        self.story().called_back.take()
    }

    /// Records that the present attempt failed in a way that may be the call's own doing.
    pub(crate) fn set_has_failed(&self) {
        self.story().has_failed = true;
    }

    /// What the target's cool-down means for the attempt that just failed.
    pub(crate) fn set_hold(&self, hold: Hold) {
        self.story().hold = Some(hold);
    }

    pub(crate) fn take_hold(&self) -> Hold {
        self.story().hold.take().unwrap_or(Hold::No)
    }

    /// Remembers why the last attempt failed, for an error that comes later.
    pub(crate) fn set_last_failure(&self, class: &'static str) {
        self.story().last_failure = Some(class);
    }

    pub(crate) fn last_failure(&self) -> Option<&'static str> {
        self.story().last_failure
    }

    /// Its story; of one whose twin came first, the twin's.
    fn story(&self) -> MutexGuard<'_, Story> {
        match self.0.winner.get() {
            Some(twin) => twin.0.story.lock(),
            None => self.0.story.lock(),
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.0.id)
            .field("target", &self.0.target.name())
            .field("tenant", &self.0.tenant)
            .field("lane", &self.0.lane)
            .finish_non_exhaustive()
    }
}

/// How long a call may take that sets no deadline of its own: as its target says, or, where that is the default, as long as a more patient
/// client allows for silence.
fn longest(deadline: Duration, read: Option<Duration>) -> Duration {
    if deadline == DEFAULT_DEADLINE { deadline.max(read.unwrap_or_default()) } else { deadline }
}

fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
