//! The number of slots in force: a fixed number, or an adaptive limit.
//!
//! # Invariants
//!
//! - Each call that holds a slot is reported to the limit as sent once and as ended once.
//! - The calls awaiting their first token are the streamed calls whose first token was not
//!   reported.
//! - The limit sees the current time before it sees any event.

use std::time::{Duration, Instant};

use super::rule::Rule;
use super::ticket::Ticket;
use crate::adaptive::{AdaptiveView, CallKind, Decision, Ended, Limit, LimitSettings, LimitView, Sample};

/// The maximum number of limit changes kept until the driver takes them.
const MAX_MOVES: usize = 64;
/// A limit is saturated if it was too high within this time and calls still wait for it.
const RECENT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Limiter {
    /// Slots in force, cached because every decision reads them.
    slots: usize,
    /// The maximum number of calls awaiting their first token.
    most_awaiting: usize,
    /// Calls awaiting their first token, if their number is limited.
    awaiting: usize,
    adaptive: Option<Box<AdaptiveLimit>>,
}

/// An adaptive limit.
#[derive(Debug)]
struct AdaptiveLimit {
    limit: Limit,
    ceiling: usize,
    /// The latency objective: to the first token, or to the end if no call is streamed.
    objective: Option<Duration>,
    /// When time alone may change the limit.
    due: Option<Instant>,
    last_move: Option<Decision>,
    /// Changes that the driver has not taken.
    moves: Vec<Decision>,
}

/// A call in flight, as known to an adaptive limit.
#[derive(Debug)]
pub(super) struct Tracked {
    sample: Sample,
    /// The expected length of the answer, in tokens.
    pub(super) output: u64,
    pub(super) awaits: bool,
}

impl Limiter {
    pub(super) fn fixed(slots: usize) -> Self {
        Self { slots, most_awaiting: usize::MAX, awaiting: 0, adaptive: None }
    }

    /// Creates a limit of `slots` slots if `adaptive` is `None`.
    pub(super) fn new(slots: usize, adaptive: Option<&LimitSettings>, now: Instant) -> Self {
        let Some(settings) = adaptive else { return Self::fixed(slots) };
        let limit = Limit::new(settings, now);
        Self {
            slots: limit.slots(),
            most_awaiting: limit.first_token_limit(),
            awaiting: 0,
            adaptive: Some(Box::new(AdaptiveLimit {
                limit,
                ceiling: settings.max,
                objective: settings.objective.or(settings.latency),
                due: None,
                last_move: None,
                moves: Vec::new(),
            })),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns what leaves no room for another call.
    pub(super) fn shortage(&self, in_flight: usize) -> Option<Rule> {
        if in_flight >= self.slots {
            Some(Rule::Slots)
        } else if self.awaiting >= self.most_awaiting {
            Some(Rule::FirstTokens)
        } else {
            None
        }
    }

    pub(super) fn on_sent(&mut self, now: Instant, ticket: &Ticket) -> Option<Tracked> {
        let adaptive = self.adaptive.as_mut()?;
        let demand = &ticket.demand;
        let kind = CallKind { input: demand.input, output: demand.output, streams: ticket.streams };
        let sample = adaptive.limit.on_sent(now, kind);
        self.awaiting += usize::from(kind.streams);
        self.follow();
        Some(Tracked { sample, output: kind.output, awaits: kind.streams })
    }

    pub(super) fn on_first_token(&mut self, now: Instant, tracked: &mut Tracked) {
        self.stop_awaiting(tracked);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.limit.on_first_token(now, &mut tracked.sample);
            self.follow();
        }
    }

    pub(super) fn on_unobservable(&mut self, now: Instant, tracked: &mut Tracked, output: u64) {
        self.stop_awaiting(tracked);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.limit.mark_unobservable(now, &mut tracked.sample, output);
            self.follow();
        }
    }

    pub(super) fn on_end(&mut self, now: Instant, mut tracked: Tracked, how: Ended) {
        self.stop_awaiting(&mut tracked);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.limit.on_ended(now, tracked.sample, how);
            self.follow();
        }
    }

    fn stop_awaiting(&mut self, tracked: &mut Tracked) {
        if std::mem::take(&mut tracked.awaits) {
            // A limit that was replaced meanwhile has started to count anew.
            self.awaiting = self.awaiting.saturating_sub(1);
        }
    }

    /// Lets time pass at the limit.
    pub(super) fn tick(&mut self, now: Instant) {
        if let Some(adaptive) = &mut self.adaptive
            && adaptive.due.is_some_and(|at| at <= now)
        {
            adaptive.limit.on_tick(now);
            self.follow();
        }
    }

    /// Returns when time alone may change the limit.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.adaptive.as_ref()?.due
    }

    /// Reads the limit again, and keeps the reason if it has changed.
    fn follow(&mut self) {
        let Some(adaptive) = &mut self.adaptive else { return };
        adaptive.due = adaptive.limit.next_wake();
        self.most_awaiting = adaptive.limit.first_token_limit();
        self.slots = adaptive.limit.slots();
        let last = adaptive.limit.last_change();
        if let Some(decision) = last.filter(|_| last != adaptive.last_move) {
            adaptive.last_move = last;
            // Bounds the memory if the driver never takes them.
            if adaptive.moves.len() < MAX_MOVES {
                adaptive.moves.push(decision);
            }
        }
    }

    pub(super) fn take_limit_changes(&mut self) -> Vec<Decision> {
        self.adaptive.as_mut().map(|adaptive| std::mem::take(&mut adaptive.moves)).unwrap_or_default()
    }

    /// Returns the state of the adaptive limit, or `None` if the limit is fixed.
    pub(super) fn view(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView> {
        let adaptive = self.adaptive.as_ref()?;
        let lately = |at: Instant| now.saturating_duration_since(at) <= RECENT;
        Some(AdaptiveView {
            limit: LimitView { objective: adaptive.objective, ..adaptive.limit.view(now) },
            ceiling: adaptive.ceiling,
            saturated: self.shortage(in_flight).is_some() && adaptive.limit.last_breach().is_some_and(lately),
        })
    }
}
