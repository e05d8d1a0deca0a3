//! A call, as all layers of the client see it: its identity and its state.
//!
//! The identity (which tenant calls which target, with which deadline) does not change. The state
//! changes with each attempt (`state.rs`). The outcome of an attempt is not stored here: each layer
//! returns it to the layer above (`attempt_result.rs`).

mod attempt;
mod attempt_result;
mod hedge;
mod retries;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use attempt::{Attempt, ExchangeRecord, Seen};
pub(crate) use attempt_result::{AttemptResult, outcome_of, outcome_of_error, retry_path_of, set_retry_path};
use parking_lot::{Mutex, MutexGuard};
pub(crate) use retries::{CanReplay, RetryCharge};
use state::CallState;
pub(crate) use state::usage_of;

use crate::admission::TaskSlots;
use crate::clock;
use crate::config::{DEFAULT_DEADLINE, Mode};
use crate::context::{CallGroup, GroupWait, Lane, TaskId, Timeouts};
use crate::duration;
use crate::metrics::TenantMetrics;
use crate::placement::{Affinity, Wants};
use crate::schedule::Ticket;
use crate::target::{KeyedCooldowns, Target};
use tidegate_policy::outcome::FailureCause;
use tidegate_protocol::request::{Purpose, RequestFacts};
use tidegate_tokens::Demand;

/// One call. The layers share it through the extensions of the request.
///
/// It contains neither the headers nor the body of the request.
#[derive(Clone)]
pub struct Call(Arc<Inner>);

struct Inner {
    identity: Identity,
    /// Number of the call, unique in this process.
    id: u64,
    /// The metrics of the call's tenant at its target.
    metrics: Arc<TenantMetrics>,
    /// When the call was made. Retries and fallbacks keep this time.
    queued_at: Instant,
    /// When the whole call must have ended, its stream included.
    deadline: Instant,
    /// `true` if the caller or the configuration has set the deadline, `false` if the deadline is
    /// the default.
    has_own_deadline: bool,
    /// Name of the target that rejected the call before the call came to this target as a fallback.
    /// `None` if this is the call's first target.
    refused_by: Option<Arc<str>>,
    /// `true` if this is a hedge: a second attempt that runs in parallel to the first one. A hedge
    /// never waits. It is sent only if another replica has a free slot.
    is_hedge: bool,
    state: Mutex<CallState>,
    /// The hedge that produced the first token before the call's own attempt. Empty if none did.
    /// Once set, the call uses the state of that hedge.
    winner: OnceLock<Call>,
}

impl Inner {
    /// Returns a copy of the call with the state `state`. The copy is not marked as a hedge.
    fn with_state(&self, state: CallState) -> Self {
        Self {
            identity: self.identity.clone(),
            id: self.id,
            metrics: self.metrics.clone(),
            queued_at: self.queued_at,
            deadline: self.deadline,
            has_own_deadline: self.has_own_deadline,
            refused_by: self.refused_by.clone(),
            is_hedge: false,
            state: Mutex::new(state),
            winner: OnceLock::new(),
        }
    }
}

/// The facts about a call that do not change between its attempts. See [`Call::new`].
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) mode: Mode,
    pub(crate) target: Arc<Target>,
    /// Hash of the credential and model of the request. A target that several of them use has a
    /// separate cool-down for each hash. `None` for fallbacks, for slots without a request, and for
    /// targets of one credential and model.
    pub(crate) cooldown_key: Option<u64>,
    pub(crate) facts: RequestFacts,
    pub(crate) tenant: Arc<str>,
    pub(crate) lane: Lane,
    /// The timeouts of the HTTP client that makes the call.
    pub(crate) timeouts: Timeouts,
    /// The caller's deadline. `None` if the caller set none, so that the target's `deadline`
    /// applies.
    pub(crate) deadline: Option<Instant>,
    /// The caller's label, by which the call log and explanations name the call. `None` if the
    /// caller set none.
    pub(crate) label: Option<Arc<str>>,
    /// The registry of the model slots that tasks hold, and the task that makes the call. `None` if
    /// no tools are configured, or if no task makes the call.
    pub(crate) task_slots: Option<(Arc<TaskSlots>, TaskId)>,
    /// The prompt prefixes and the session of the call. The gate prefers a replica that has them in
    /// its prefix cache. `None` if the target is not a pool.
    pub(crate) affinity: Option<Affinity>,
    /// The group of calls that the call belongs to. `None` if it is in no group.
    pub(crate) group: Option<CallGroup>,
    /// Maximum number of attempts that the caller has set. `None` if the caller set none, so that
    /// the target's `retry.attempts` applies.
    pub(crate) max_attempts: Option<u32>,
}

/// Returns a number that is unique among the calls and the tool waits of this process.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Call {
    /// Creates a call that is made `now`.
    ///
    /// The call must end at the caller's deadline, and at most the target's `deadline` after `now`.
    /// If the target's `deadline` has its default value and the client's read timeout is longer,
    /// the read timeout replaces it. If it has its default value and the request runs no model, the
    /// caller's deadline alone applies.
    pub(crate) fn new(mut identity: Identity, now: Instant) -> Self {
        identity.timeouts = identity.timeouts.limited();
        let (target, own_deadline) = (&identity.target, identity.deadline);
        let configured = target.config().deadline;
        let is_inference = identity.facts.purpose == Purpose::Inference;
        let longest = match own_deadline {
            // An upload may take longer than the default allows for a response.
            Some(_) if configured == DEFAULT_DEADLINE && !is_inference => duration::MAX,
            _ => longest(configured, identity.timeouts.read),
        };
        let longest = duration::after(now, longest);
        target.on_call();
        Self(Arc::new(Inner {
            id: number(),
            metrics: target.metrics().tenant(&identity.tenant),
            queued_at: now,
            deadline: own_deadline.map_or(longest, |own| own.min(longest)),
            has_own_deadline: own_deadline.is_some() || configured != DEFAULT_DEADLINE,
            refused_by: None,
            is_hedge: false,
            state: Mutex::default(),
            winner: OnceLock::new(),
            identity,
        }))
    }

    /// Creates the call to the fallback target `target`, after the current target has rejected this
    /// call. `model` replaces the model of the call, or `None` keeps it. The new call keeps the
    /// deadline and the time at which the call was made. The time waited for a slot so far is
    /// subtracted from the client's `pool` timeout.
    pub(crate) fn for_fallback(&self, target: Arc<Target>, model: Option<Arc<str>>) -> Self {
        target.on_call();
        let (was_sent, may_have_run) = (self.was_sent(), self.may_have_run());
        let mut call = self.0.with_state(CallState { was_sent, may_have_run, ..CallState::default() });
        call.refused_by = Some(self.target().name().clone());
        call.metrics = target.metrics().tenant(self.tenant());
        let left = self.left_to_wait();
        let identity = &mut call.identity;
        identity.timeouts.pool = left;
        identity.facts.model = model.or(identity.facts.model.take());
        // A pool needs the affinity to select a replica that serves the model.
        if target.config().pool.is_some() {
            identity.affinity.get_or_insert_default();
        }
        // The credential of the fallback is not that of the request.
        identity.cooldown_key = None;
        identity.target = target;
        Self(Arc::new(call))
    }

    /// Returns the number of the call, which is unique in this process. The hedges of a call, and
    /// the same call at a fallback target, have the same number.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.0.identity.target
    }

    /// Returns the cool-downs of each credential and model that use the target, and the key of this
    /// call in them. `None` if the call has no key, or if no call with another key has used the
    /// target.
    pub(crate) fn keyed_cooldown(&self) -> Option<(&KeyedCooldowns, u64)> {
        self.target().keyed_cooldowns().zip(self.0.identity.cooldown_key)
    }

    /// Records at the target that the call was asked to wait, if it has no key.
    pub(crate) fn note_keyless_wait(&self) {
        if self.0.identity.cooldown_key.is_none() {
            self.target().on_keyless_wait();
        }
    }

    /// Returns what was read from the request, such as the model and whether the response streams.
    pub fn facts(&self) -> &RequestFacts {
        &self.0.identity.facts
    }

    /// Returns the name of the target that rejected the call before the call came to this target as
    /// a fallback. `None` if this is the call's first target.
    pub(crate) fn refused_by(&self) -> Option<&Arc<str>> {
        self.0.refused_by.as_ref()
    }

    /// Returns the name of the tenant. Slots are shared fairly between tenants.
    pub fn tenant(&self) -> &Arc<str> {
        &self.0.identity.tenant
    }

    /// Returns the lane, which is the priority class of the call.
    pub fn lane(&self) -> Lane {
        self.0.identity.lane
    }

    /// Returns the label that the caller gave the call. `None` if it has none.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.0.identity.label.as_ref()
    }

    /// Returns the registry of the model slots that tasks hold, and the task that makes the call.
    /// `None` if no tools are configured, or if no task makes the call.
    pub(crate) fn task_slots(&self) -> Option<(&Arc<TaskSlots>, TaskId)> {
        self.0.identity.task_slots.as_ref().map(|(slots, task)| (slots, *task))
    }

    /// Counts the call as waiting in its [group](CallGroup) until the returned guard is dropped.
    /// Returns `None` if the call is in no group.
    pub(crate) fn begin_group_wait(&self) -> Option<GroupWait> {
        self.0.identity.group.as_ref().map(CallGroup::begin_wait)
    }

    /// Returns when the call was made. Retries and fallbacks keep this time.
    pub fn queued_at(&self) -> Instant {
        self.0.queued_at
    }

    /// Returns when the whole call must have ended, its stream included.
    pub fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// Returns `true` if the caller or the configuration has set the deadline, and `false` if it is
    /// the default.
    pub(crate) fn has_own_deadline(&self) -> bool {
        self.0.has_own_deadline
    }

    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.0.identity.timeouts
    }

    /// Returns `true` if the call runs a model, and therefore needs a slot.
    pub fn is_inference(&self) -> bool {
        self.0.identity.facts.purpose == Purpose::Inference
    }

    /// Returns `true` if limits apply to the call, because the mode is `enforce`.
    pub fn is_enforced(&self) -> bool {
        self.0.identity.mode == Mode::Enforce
    }

    pub(crate) fn metrics(&self) -> &TenantMetrics {
        &self.0.metrics
    }

    /// Returns the maximum time from sending an attempt until its response head arrives, and the
    /// side that is at fault if it passes: the client's `read` timeout or, for streams in mode
    /// `enforce`, the target's `first_token` limit if it is not longer. `None` if unlimited.
    ///
    /// The target's limit applies to streams only, because the head of any other response arrives
    /// with the whole response.
    pub(crate) fn head_limit(&self) -> Option<(Duration, FailureCause)> {
        let own = self.target().config().first_token;
        self.or_read_timeout(own.filter(|_| self.is_enforced() && self.facts().stream))
    }

    /// Returns how long to wait for the next sign of progress of the call: the time left until its
    /// deadline. If both `head_limit` and `idle_limit` are set, at most the longer of them.
    pub fn patience(&self) -> Duration {
        let left = self.0.deadline.saturating_duration_since(clock::now());
        match (self.head_limit(), self.idle_limit()) {
            (Some((head, _)), Some((idle, _))) => left.min(head.max(idle)),
            _ => left,
        }
    }

    /// Returns the maximum time between two chunks of the response, and the side that is at fault
    /// if it passes: the client's `read` timeout or, in mode `enforce`, the target's `idle` limit
    /// if it is not longer. `None` if unlimited.
    pub(crate) fn idle_limit(&self) -> Option<(Duration, FailureCause)> {
        let own = self.target().config().idle;
        self.or_read_timeout(own.filter(|_| self.is_enforced()))
    }

    /// Returns the target's limit `own` or, if it is shorter, the client's `read` timeout.
    fn or_read_timeout(&self, own: Option<Duration>) -> Option<(Duration, FailureCause)> {
        let own = own.map(|limit| (limit, FailureCause::Upstream));
        let read = self.timeouts().read.map(|limit| (limit, FailureCause::CallerTimeout));
        own.into_iter().chain(read).min_by_key(|(limit, _)| *limit)
    }

    /// Creates the ticket with which the next attempt is queued for a slot. A retry keeps the age
    /// of the call and its position in the queue.
    pub(crate) fn ticket(&self) -> Ticket {
        let (identity, target) = (&self.0.identity, self.target());
        let (queue, exact_input, avoid) = {
            let state = self.state();
            (state.queue, state.exact_input, state.tried.clone())
        };
        let config = target.config();
        let of_lane = config.lanes.get(identity.lane as usize).and_then(|lane| lane.wait);
        let wait = of_lane.or(config.wait).into_iter().chain(identity.timeouts.pool).min();
        let demand = self.demand(exact_input);
        let exact = demand.exact.then_some(demand.input);
        let forecast = target.estimates().forecast(&identity.facts, &identity.tenant, exact);
        let wants = identity
            .affinity
            .clone()
            .map(|affinity| Box::new(Wants { model: identity.facts.model.clone(), affinity, avoid }));
        Ticket {
            tenant: identity.tenant.clone(),
            lane: identity.lane,
            queued_at: self.0.queued_at,
            deadline: self.0.deadline,
            wait: wait.map(|wait| wait.saturating_sub(queue.used_wait)),
            client_timeout: self.left_after(queue.waited).map(|left| duration::after(clock::now(), left)),
            has_failed: queue.has_failed,
            demand,
            forecast,
            streams: identity.facts.stream,
            cost: target.estimates().cost(&demand),
            wants,
            queue_tag: queue.queue_tag,
            is_accepted: false,
        }
    }

    /// Returns for how long the caller's client still waits for a slot: its `pool` timeout, minus
    /// the time waited so far. `None` if the client has no such timeout.
    pub(crate) fn left_to_wait(&self) -> Option<Duration> {
        self.left_after(self.queue().waited)
    }

    /// Returns the client's `pool` timeout minus `waited`. `None` if the client has no such
    /// timeout.
    fn left_after(&self, waited: Duration) -> Option<Duration> {
        Some(self.timeouts().pool?.saturating_sub(waited))
    }

    /// Waits until the first lookup of the pool's replicas has finished, at most until the
    /// deadline. Returns immediately if the target is not a pool, or if its replicas are not
    /// discovered by DNS.
    pub(crate) async fn wait_for_first_lookup(&self) {
        let left = self.deadline().saturating_duration_since(clock::now());
        self.target().wait_for_first_lookup(left).await;
    }

    /// Returns the current estimate of the input and output tokens of the call. `exact_input`, the
    /// counted input tokens, replaces their estimate.
    fn demand(&self, exact_input: Option<u64>) -> Demand {
        let demand = self.target().estimates().demand(self.facts(), self.tenant());
        match exact_input {
            Some(input) => Demand { input, exact: true, ..demand },
            None => demand,
        }
    }

    /// Locks the state of the call or, if a hedge has won, the state of that hedge.
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
            .field("target", &self.0.identity.target.name())
            .field("tenant", &self.0.identity.tenant)
            .field("lane", &self.0.identity.lane)
            .finish_non_exhaustive()
    }
}

/// Returns the maximum duration of a call: the target's `deadline`. If `deadline` has its default
/// value, the client's `read` timeout replaces it if it is longer.
fn longest(deadline: Duration, read: Option<Duration>) -> Duration {
    if deadline == DEFAULT_DEADLINE { deadline.max(read.unwrap_or_default()) } else { deadline }
}
