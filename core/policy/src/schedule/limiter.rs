//! The number of slots in force at one server: a fixed number, or an adaptive limit.
//!
//! # Invariants
//!
//! - Each call that gets a slot is reported to the adaptive limit once as sent and once as ended.
//! - While several processes share the limit, its slots are those that their leader has found.
//! - The calls that await their first token are the streamed calls whose first token was not
//!   reported.

use std::time::{Duration, Instant};

use super::{LimitEventExchange, Rule, Ticket, UpstreamLoad};
use crate::adaptive::{AdaptiveView, CallKind, Decision, Ended, Limit, LimitSettings, LimitView, Sample};
use tidegate_protocol::vllm::EngineMetrics;
use tidegate_share::{CallStep, Lease, LeaseView, LimitEvents};

/// The maximum number of limit changes that are kept for the driver. Later ones are dropped.
const MAX_CHANGES: usize = 64;
/// A limit counts as saturated if no slot is free and too many calls were in flight (see
/// [`Limit::last_breach`]) within this time.
const SATURATION_WINDOW: Duration = Duration::from_secs(60);

/// The current number of slots: a fixed number, or an adaptive limit.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The current number of slots. Cached because each decision reads it.
    pub(super) slots: usize,
    /// The maximum number of calls that await their first token. `usize::MAX` if the limit is
    /// fixed.
    most_awaiting: usize,
    /// The number of streamed calls that await their first token. Always zero if the limit is
    /// fixed.
    pub(super) awaiting: usize,
    /// The slots that this process may reach while other processes want some.
    reachable: usize,
    /// For each of the last 16 calls, whether it streams. The newest is the lowest bit.
    recent_streams: u16,
    /// When time alone may change the adaptive limit, or `None` if it does not.
    pub(super) next_wake: Option<Instant>,
    /// The adaptive limit, or `None` if the limit is fixed.
    adaptive: Option<Box<AdaptiveLimit>>,
    /// The changes of the adaptive limit that the driver has not taken yet, at most
    /// [`MAX_CHANGES`].
    pub(super) changes: Vec<Decision>,
    /// The events that are exchanged with other processes, or `None` if the limit is not shared.
    exchange: Option<Box<LimitEventExchange>>,
}

/// An adaptive limit, with what is reported about it.
#[derive(Debug)]
struct AdaptiveLimit {
    limit: Limit,
    /// The last change that was added to [`Limiter::changes`], or `None` if there was none.
    last_move: Option<Decision>,
}

/// What the adaptive limit tracks about a call in flight.
#[derive(Debug)]
pub(super) struct Tracked {
    sample: Sample,
    /// The expected length of the answer in tokens.
    output: u64,
    /// Whether the call is counted among those that await their first token.
    pub(super) awaits: bool,
    /// See [`Limit::first_token_work_seconds`].
    pub(super) work_seconds: f64,
    /// The number of the call in the [`LimitEventExchange`], or 0 if the limit is not shared.
    call: u64,
}

impl Tracked {
    /// See [`Sample::first_token_work`].
    pub(super) fn work(&self) -> u64 {
        self.sample.first_token_work()
    }
}

impl Limiter {
    /// Creates a fixed limit.
    pub(super) fn fixed(slots: usize) -> Self {
        Self {
            slots,
            most_awaiting: usize::MAX,
            awaiting: 0,
            reachable: usize::MAX,
            recent_streams: 0,
            next_wake: None,
            adaptive: None,
            changes: Vec::new(),
            exchange: None,
        }
    }

    /// Creates an adaptive limit, or a fixed limit of `slots` slots if `adaptive` is `None`.
    pub(super) fn new(slots: usize, adaptive: Option<&LimitSettings>, now: Instant) -> Self {
        let Some(settings) = adaptive else { return Self::fixed(slots) };
        let limit = Limit::new(settings, now);
        let (slots, most_awaiting) = (limit.slots(), limit.first_token_limit());
        let adaptive = Some(Box::new(AdaptiveLimit { limit, last_move: None }));
        Self { most_awaiting, adaptive, ..Self::fixed(slots) }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.adaptive.is_none()
    }

    /// Returns the rule that keeps another call from being sent while `in_flight` slots are in use,
    /// or `None` if another call may be sent.
    pub(super) fn shortage(&self, in_flight: usize) -> Option<Rule> {
        let lacks_first_tokens = self.awaiting >= self.most_awaiting;
        let first_tokens = lacks_first_tokens.then_some(Rule::FirstTokens);
        if in_flight >= self.slots { Some(Rule::Slots) } else { first_tokens }
    }

    /// See [`Upstream::load`](super::Upstream::load).
    pub(super) fn load(&self) -> UpstreamLoad {
        let Some(AdaptiveLimit { limit, .. }) = self.adaptive.as_deref() else {
            return UpstreamLoad::UNSHARED;
        };
        UpstreamLoad {
            first_tokens: limit.first_token_capacity(),
            has_first_token_room: limit.has_first_token_room(),
            reachable_slots: limit.reachable_slots().min(self.reachable),
        }
    }

    /// See [`Limit::keep_free`].
    pub(super) fn keep_free(&mut self, spare: usize) {
        if let Some(adaptive) = self.adaptive.as_deref_mut() {
            adaptive.limit.keep_free(spare);
        }
    }

    /// Reports to the adaptive limit that a call got a slot. Returns the call's tracking state for
    /// later reports, or `None` if the limit is fixed.
    pub(super) fn on_sent(&mut self, now: Instant, ticket: &Ticket) -> Option<Tracked> {
        let demand = &ticket.demand;
        let kind = CallKind { input: demand.input, output: demand.output, streams: ticket.streams };
        let (sample, work_seconds) = self.update(|limit| {
            let sample = limit.on_sent(now, kind);
            let work_seconds = limit.first_token_work_seconds(&sample);
            (sample, work_seconds)
        })?;
        self.awaiting += usize::from(kind.streams);
        self.recent_streams = self.recent_streams << 1 | u16::from(kind.streams);
        let call = self.exchange.as_mut().map_or(0, |exchange| exchange.on_sent(now, kind));
        Some(Tracked { sample, output: kind.output, awaits: kind.streams, work_seconds, call })
    }

    /// Reports the first token of a call to the adaptive limit.
    pub(super) fn on_first_token(&mut self, now: Instant, tracked: &mut Tracked) {
        self.stop_awaiting(tracked);
        self.tell(now, tracked, CallStep::FirstToken);
        self.update(|limit| limit.on_first_token(now, &mut tracked.sample));
    }

    /// Reports to the adaptive limit that the first token of a call cannot be observed.
    pub(super) fn on_unobservable(&mut self, now: Instant, tracked: &mut Tracked) {
        let output = tracked.output;
        self.stop_awaiting(tracked);
        self.tell(now, tracked, CallStep::Unobservable { output });
        self.update(|limit| limit.mark_unobservable(now, &mut tracked.sample, output));
    }

    /// Reports the end of a call and its outcome `how` to the adaptive limit.
    pub(super) fn on_end(&mut self, now: Instant, mut tracked: Tracked, how: Ended) {
        self.stop_awaiting(&mut tracked);
        if let Some(exchange) = &mut self.exchange {
            exchange.on_ended(now, tracked.call, how);
        }
        self.update(|limit| limit.on_ended(now, tracked.sample, how));
    }

    /// Reports to the adaptive limit what the engine reports about its calls.
    pub(super) fn on_engine_metrics(&mut self, now: Instant, metrics: &EngineMetrics) {
        self.update(|limit| limit.on_engine_metrics(now, metrics));
    }

    /// Tells other processes of a call, if they share the limit.
    fn tell(&mut self, now: Instant, tracked: &Tracked, step: CallStep) {
        if let Some(exchange) = &mut self.exchange {
            exchange.on_step(now, tracked.call, step);
        }
    }

    /// Shares the limit with other processes if it is adaptive.
    pub(super) fn share(&mut self) {
        self.exchange = self.adaptive.is_some().then(Box::default);
    }

    /// Returns the events that are exchanged with other processes, or `None` if the limit is not
    /// adaptive or not shared.
    pub(super) fn exchange(&mut self) -> Option<&mut LimitEventExchange> {
        self.exchange.as_deref_mut()
    }

    /// Reports events of the calls of another process to the adaptive limit.
    pub(super) fn observe(&mut self, now: Instant, process: u64, limit_events: &LimitEvents) {
        self.with_exchange(|exchange, limit| exchange.observe(now, limit, process, limit_events));
    }

    /// Applies what `lease` says about the adaptive limit of all processes.
    pub(super) fn on_lease_changed(&mut self, now: Instant, lease: &Lease) {
        let LeaseView { members, cap, .. } = lease.view();
        self.with_exchange(|exchange, limit| {
            // A new leader begins with the limit that it has followed.
            if exchange.follows() {
                limit.follow(cap, limit.first_token_limit());
            }
            exchange.on_appointed(now, limit, lease.appointment(), members);
        });
    }

    fn with_exchange(&mut self, event: impl FnOnce(&mut LimitEventExchange, &mut Limit)) {
        let Some(mut exchange) = self.exchange.take() else { return };
        self.update(|limit| event(&mut exchange, limit));
        self.exchange = Some(exchange);
    }

    /// Puts the limit in force that all processes have together: that of the leases, or, if this
    /// process leads, its own, which the leases then tell the others.
    pub(super) fn apply_leases(&mut self, slots: &mut Lease, first_tokens: Option<&mut Lease>) {
        let Some(exchange) = &self.exchange else { return };
        let Some(AdaptiveLimit { limit, .. }) = self.adaptive.as_deref_mut() else { return };
        if exchange.follows() {
            let first_tokens = first_tokens.as_ref().map_or(usize::MAX, |lease| lease.view().cap);
            limit.follow(slots.view().cap, first_tokens);
        }
        self.reachable = if slots.view().others_short { slots.in_force() } else { usize::MAX };
        self.slots = limit.slots();
        self.most_awaiting = limit.first_token_limit();
        slots.set_adaptive(self.slots);
        if let Some(lease) = first_tokens {
            lease.set_adaptive(self.most_awaiting);
            // The leader of the slots also decides how many calls may await their first token.
            if let Some(role) = exchange.role() {
                lease.set_role(role);
            }
            // Calls that do not stream do not use the leased places, and at least as many places as
            // slots limit nothing.
            if self.recent_streams > 0 && lease.view().cap < slots.view().cap {
                // If the broker was lost while all places were idle, a call with a slot may be
                // sent.
                let least = usize::from(slots.appointment().is_none());
                self.most_awaiting = self.most_awaiting.min(lease.in_force().max(least));
            }
        }
    }

    /// Stops counting the call among those that await their first token, if it is counted.
    fn stop_awaiting(&mut self, tracked: &mut Tracked) {
        if std::mem::take(&mut tracked.awaits) {
            // A limit that was replaced meanwhile has started to count anew.
            self.awaiting = self.awaiting.saturating_sub(1);
        }
    }

    /// Reports the time to the adaptive limit if `next_wake` has passed. Returns `true` if it has
    /// passed.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        let is_due = self.next_wake.is_some_and(|at| at <= now);
        if is_due {
            self.update(|limit| limit.on_tick(now));
        }
        is_due
    }

    /// Reports an event to the adaptive limit, updates the cached values, and records the change if
    /// the limit has changed. Returns `None`, without calling `event`, if the limit is fixed.
    fn update<T>(&mut self, event: impl FnOnce(&mut Limit) -> T) -> Option<T> {
        let AdaptiveLimit { limit, last_move } = self.adaptive.as_deref_mut()?;
        let result = event(limit);
        self.next_wake = limit.next_wake();
        self.most_awaiting = limit.first_token_limit();
        self.slots = limit.slots();
        let last = limit.last_change();
        if let Some(decision) = last.filter(|_| last != *last_move) {
            *last_move = last;
            // Bounds the memory if the driver never takes them.
            if self.changes.len() < MAX_CHANGES {
                self.changes.push(decision);
            }
        }
        Some(result)
    }

    /// Returns the state of the adaptive limit while `in_flight` slots are in use, or `None` if the
    /// limit is fixed.
    pub(super) fn view(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView> {
        let AdaptiveLimit { limit, .. } = self.adaptive.as_deref()?;
        let lately = |at: Instant| now.saturating_duration_since(at) <= SATURATION_WINDOW;
        // Targets have an objective for first tokens, tools one for the whole call.
        let objective = limit.settings.objective.or(limit.settings.latency);
        Some(AdaptiveView {
            limit: LimitView { objective, ..limit.view(now) },
            ceiling: limit.settings.max,
            saturated: self.shortage(in_flight).is_some() && limit.last_breach().is_some_and(lately),
        })
    }
}
