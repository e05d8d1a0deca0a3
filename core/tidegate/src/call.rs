//! A call, as all layers see it: its identity and its state.
//!
//! The identity (who calls which target, with which deadline) never changes. The state changes with
//! each attempt (`state.rs`). The outcome of an attempt is not kept here: it travels from layer to
//! layer as a value (`result.rs`).

mod attempt;
mod hedge;
mod result;
mod retries;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use attempt::{Attempt, ExchangeRecord, Seen};
use parking_lot::{Mutex, MutexGuard};
pub(crate) use result::{AttemptResult, hold_of, outcome_of, outcome_of_error, set_hold};
pub(crate) use retries::{CanReplay, RetryCharge};
use state::CallState;
pub(crate) use state::usage_of;

use crate::admission::TaskSlots;
use crate::clock;
use crate::config::{DEFAULT_DEADLINE, Mode};
use crate::context::{Asking, Crowd, Lane, TaskId, Timeouts};
use crate::duration;
use crate::metrics::TenantMetrics;
use crate::placement::{Affinity, Wants};
use crate::schedule::Ticket;
use crate::target::{SharedCooldowns, Target};
use tidegate_protocol::request::{RequestFacts, Route};
use tidegate_tokens::Demand;

/// One call. The layers share it through the extensions of the request.
///
/// It contains neither the headers nor the body of the request.
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
    /// The key of the credential and model, if several share the target.
    shared_key: Option<u64>,
    /// The target that rejected the call, if the call came to this one as a fallback.
    refused_by: Option<Arc<str>>,
    label: Option<Arc<str>>,
    /// The slots that tasks hold, and the task of the call. `None` if no tools are configured.
    task_slots: Option<(Arc<TaskSlots>, TaskId)>,
    /// What the prompt has in common with other prompts, if the target is a pool.
    affinity: Option<Affinity>,
    /// The group that the call belongs to.
    crowd: Option<Crowd>,
    state: Mutex<CallState>,
    /// Whether this is a hedge, which only takes a slot that is free at once at another replica.
    is_hedge: bool,
    /// The hedge that produced the first token, if one did. Its state is the state of the call from
    /// then on.
    winner: OnceLock<Call>,
}

impl Inner {
    /// Returns a copy of the identity with another state.
    fn clone_identity(&self, state: CallState) -> Self {
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
            task_slots: self.task_slots.clone(),
            affinity: self.affinity.clone(),
            crowd: self.crowd.clone(),
            state: Mutex::new(state),
            is_hedge: false,
            winner: OnceLock::new(),
        }
    }
}

/// The identity of a call. See [`Call::new`].
pub(crate) struct Identity {
    pub(crate) mode: Mode,
    pub(crate) target: Arc<Target>,
    /// The key of the credential and model, if several share the target.
    pub(crate) shared_key: Option<u64>,
    pub(crate) facts: RequestFacts,
    pub(crate) tenant: Arc<str>,
    pub(crate) lane: Lane,
    pub(crate) timeouts: Timeouts,
    pub(crate) deadline: Option<Instant>,
    /// The caller's label for the call.
    pub(crate) label: Option<Arc<str>>,
    /// The slots that tasks hold, and the task of the call. `None` if no tools are configured.
    pub(crate) task_slots: Option<(Arc<TaskSlots>, TaskId)>,
    /// What the prompt has in common with other prompts, if the target is a pool.
    pub(crate) affinity: Option<Affinity>,
    /// The group that the call belongs to.
    pub(crate) crowd: Option<Crowd>,
}

/// Returns a number that is unique among the calls and tool waits of this process.
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
            task_slots,
            affinity,
            crowd,
        } = identity;
        let timeouts = timeouts.limited();
        let longest = duration::after(now, longest(target.config().deadline, timeouts.read));
        target.on_call();
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
            task_slots,
            affinity,
            crowd,
            state: Mutex::default(),
            is_hedge: false,
            winner: OnceLock::new(),
        }))
    }

    /// Creates the same call for its fallback target, after its own target rejected it. The call
    /// keeps its age, its deadline, and the rest of its client's wait budget.
    pub(crate) fn for_fallback(&self, target: Arc<Target>, model: Option<Arc<str>>, now: Instant) -> Self {
        target.on_call();
        let mut call = self.0.clone_identity(CallState::default());
        let waited = now.saturating_duration_since(call.queued_at);
        call.timeouts.pool = call.timeouts.pool.map(|pool| pool.saturating_sub(waited));
        call.metrics = target.metrics().tenant(&call.tenant);
        call.facts.model = model.or(call.facts.model.take());
        call.refused_by = Some(call.target.name().clone());
        // A pool needs the affinity to select a replica that serves the model.
        call.affinity =
            call.affinity.take().or_else(|| target.config().pool.as_ref().map(|_| Affinity::default()));
        call.target = target;
        // A fallback is a configured target, which is never shared.
        call.shared_key = None;
        Self(Arc::new(call))
    }

    /// Returns the number of the call, which is unique in this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the target.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.0.target
    }

    /// Returns the cool-downs of a shared target, with the key of this call. `None` if the target
    /// is not shared.
    pub(crate) fn shared(&self) -> Option<(&SharedCooldowns, u64)> {
        self.0.target.shared().zip(self.0.shared_key)
    }

    /// Returns the facts that were read from the request.
    pub fn facts(&self) -> &RequestFacts {
        &self.0.facts
    }

    /// Returns the target that rejected the call, if the call came to this one as a fallback.
    pub(crate) fn refused_by(&self) -> Option<&Arc<str>> {
        self.0.refused_by.as_ref()
    }

    /// Returns the tenant, between which slots are shared fairly.
    pub fn tenant(&self) -> &Arc<str> {
        &self.0.tenant
    }

    /// Returns the lane, which is the priority class.
    pub fn lane(&self) -> Lane {
        self.0.lane
    }

    /// Returns the caller's label for the call.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.0.label.as_ref()
    }

    /// Returns the slots that tasks hold, and the task of the call. `None` if no tools are
    /// configured.
    pub(crate) fn task_slots(&self) -> Option<(&Arc<TaskSlots>, TaskId)> {
        self.0.task_slots.as_ref().map(|(slots, task)| (slots, *task))
    }

    /// Counts the call as waiting in its group, until the returned guard is dropped. Returns `None`
    /// if the call is in no group.
    pub(crate) fn asks(&self) -> Option<Asking> {
        self.0.crowd.as_ref().map(Crowd::asks)
    }

    /// Returns when the call was made.
    pub fn queued_at(&self) -> Instant {
        self.0.queued_at
    }

    /// Returns when the whole call must have ended, its stream included.
    pub fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// Returns `true` if the caller or the configuration has set a deadline.
    pub(crate) fn has_own_deadline(&self) -> bool {
        self.0.own_deadline
    }

    /// Returns the timeouts of the HTTP client that makes the call.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    /// Returns `true` if the call runs a model, and therefore needs a slot.
    pub fn is_inference(&self) -> bool {
        self.0.facts.route == Route::Inference
    }

    /// Returns `true` if limits apply to the call: the mode is `enforce`.
    pub fn is_enforced(&self) -> bool {
        self.0.mode == Mode::Enforce
    }

    /// Returns the metrics of the call's tenant at its target.
    pub(crate) fn metrics(&self) -> &TenantMetrics {
        &self.0.metrics
    }

    /// Returns the maximum time from sending an attempt to its response head. `None` if unlimited.
    ///
    /// The target's `first_token` limit does not apply to calls that do not stream, because their
    /// head arrives with the whole response.
    pub(crate) fn head_limit(&self) -> Option<Duration> {
        let own = self.0.target.config().first_token.filter(|_| self.is_enforced() && self.0.facts.stream);
        earlier(own, self.0.timeouts.read)
    }

    /// Returns how much longer to wait for the call: until its deadline or, if that is shorter, for
    /// the longest silence that its timeouts allow.
    pub fn patience(&self) -> Duration {
        let left = self.0.deadline.saturating_duration_since(clock::now());
        match (self.head_limit(), self.idle_limit()) {
            (Some(head), Some(idle)) => left.min(head.max(idle)),
            _ => left,
        }
    }

    /// Returns the maximum time between two chunks of the response. `None` if unlimited.
    pub(crate) fn idle_limit(&self) -> Option<Duration> {
        earlier(self.0.target.config().idle.filter(|_| self.is_enforced()), self.0.timeouts.read)
    }

    /// Creates the ticket of the next attempt. A retry keeps the age of its call and its place in
    /// the queue.
    pub(crate) fn ticket(&self) -> Ticket {
        let config = self.0.target.config();
        let of_lane = config.lanes.get(self.0.lane as usize).and_then(|lane| lane.wait);
        let wait = earlier(of_lane.or(config.wait), self.0.timeouts.pool);
        let demand = self.demand();
        let exact = demand.exact.then_some(demand.input);
        let expected = self.0.target.expected();
        let forecast = expected.forecast(&self.0.facts, &self.0.tenant, exact);
        self.update_queue(|queue| queue.demand = Some(demand));
        let queue = self.queue();
        Ticket {
            tenant: self.0.tenant.clone(),
            lane: self.0.lane,
            queued_at: self.0.queued_at,
            deadline: self.0.deadline,
            wait: wait.map(|wait| wait.saturating_sub(queue.spent)),
            has_failed: queue.has_failed,
            demand,
            forecast,
            streams: self.0.facts.stream,
            cost: expected.cost(&demand),
            wants: self.0.affinity.as_ref().map(|affinity| {
                Box::new(Wants {
                    model: self.0.facts.model.clone(),
                    affinity: affinity.clone(),
                    avoid: self.tried(),
                })
            }),
            charged: queue.charged,
        }
    }

    /// Waits until the replicas of the pool are known, at most until the deadline.
    pub(crate) async fn replicas_known(&self) {
        let left = self.deadline().saturating_duration_since(clock::now());
        self.target().replicas_known(left).await;
    }

    /// Returns the tokens that the call is expected to take, as currently estimated.
    fn demand(&self) -> Demand {
        let demand = self.0.target.expected().demand(&self.0.facts, &self.0.tenant);
        match self.exact_input() {
            Some(input) => Demand { input, exact: true, ..demand },
            None => demand,
        }
    }

    /// Returns the state of the call or, if a hedge has won, the state of the hedge.
    fn state(&self) -> MutexGuard<'_, CallState> {
        match self.0.winner.get() {
            Some(hedge) => hedge.0.state.lock(),
            None => self.0.state.lock(),
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

/// Returns the maximum duration of a call without its own deadline: the target's `deadline`. If
/// that is the default, at least the client's read timeout.
fn longest(deadline: Duration, read: Option<Duration>) -> Duration {
    if deadline == DEFAULT_DEADLINE { deadline.max(read.unwrap_or_default()) } else { deadline }
}

/// Returns the shorter of two limits. `None` means no limit.
fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
