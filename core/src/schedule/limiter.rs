//! How many slots are in force: a fixed number, or what the adaptive limit finds.
//!
//! Invariants: each call that holds a slot is told to the limit as sent once and as ended once; calls that await their first token are those
//! of them that stream and have not been told to have one. The limit has seen the time before it is told of anything.

use std::time::{Duration, Instant};

use super::rule::Rule;
use super::ticket::Ticket;
use crate::adaptive::{AdaptiveView, CallKind, Decision, Ended, Limit, LimitView, Sample, Settings};

/// So many moves are kept for whoever asks for them.
const UNTOLD: usize = 64;
/// A limit that was too high this lately, and that calls press on, is saturated.
const LATELY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Limiter {
    /// In force. Kept beside the limit that sets it, since every decision asks for it.
    slots: usize,
    /// The most calls that may await their first token.
    most_awaiting: usize,
    /// Calls that do, where that is bounded.
    awaiting: usize,
    found: Option<Box<Found>>,
}

/// A limit that is found.
#[derive(Debug)]
struct Found {
    limit: Limit,
    ceiling: usize,
    /// Of its calls: to the first token, or, where none streams, to the end.
    objective: Option<Duration>,
    /// When time alone may move it.
    due: Option<Instant>,
    last_move: Option<Decision>,
    /// Moves that nobody has been told of.
    moves: Vec<Decision>,
}

/// A call in flight, as an adaptive limit knows it.
#[derive(Debug)]
pub(super) struct Tracked {
    sample: Sample,
    /// Tokens that its answer is expected to have.
    pub(super) output: u64,
    pub(super) awaits: bool,
}

impl Limiter {
    pub(super) fn fixed(slots: usize) -> Self {
        Self { slots, most_awaiting: usize::MAX, awaiting: 0, found: None }
    }

    /// `None`: all of these slots, always.
    pub(super) fn new(slots: usize, adaptive: Option<&Settings>, now: Instant) -> Self {
        let Some(settings) = adaptive else { return Self::fixed(slots) };
        let limit = Limit::new(settings, now);
        Self {
            slots: limit.slots(),
            most_awaiting: limit.first_token_limit(),
            awaiting: 0,
            found: Some(Box::new(Found {
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

    /// What leaves no room for another call, beside so many in flight.
    pub(super) fn lack(&self, in_flight: usize) -> Option<Rule> {
        if in_flight >= self.slots {
            Some(Rule::Slots)
        } else if self.awaiting >= self.most_awaiting {
            Some(Rule::FirstTokens)
        } else {
            None
        }
    }

    pub(super) fn sent(&mut self, now: Instant, ticket: &Ticket) -> Option<Tracked> {
        let found = self.found.as_mut()?;
        let demand = &ticket.demand;
        let kind = CallKind { input: demand.input, output: demand.output, streams: ticket.streams };
        let sample = found.limit.on_sent(now, kind);
        self.awaiting += usize::from(kind.streams);
        self.follow();
        Some(Tracked { sample, output: kind.output, awaits: kind.streams })
    }

    pub(super) fn first_token(&mut self, now: Instant, tracked: &mut Tracked) {
        self.awaits_no_more(tracked);
        if let Some(found) = &mut self.found {
            found.limit.on_first_token(now, &mut tracked.sample);
            self.follow();
        }
    }

    pub(super) fn unseen(&mut self, now: Instant, tracked: &mut Tracked, output: u64) {
        self.awaits_no_more(tracked);
        if let Some(found) = &mut self.found {
            found.limit.mark_unobservable(now, &mut tracked.sample, output);
            self.follow();
        }
    }

    pub(super) fn ended(&mut self, now: Instant, mut tracked: Tracked, how: Ended) {
        self.awaits_no_more(&mut tracked);
        if let Some(found) = &mut self.found {
            found.limit.on_ended(now, tracked.sample, how);
            self.follow();
        }
    }

    fn awaits_no_more(&mut self, tracked: &mut Tracked) {
        if std::mem::take(&mut tracked.awaits) {
            // A limit that was set by hand meanwhile has begun anew.
            self.awaiting = self.awaiting.saturating_sub(1);
        }
    }

    /// Lets the limit see the time.
    pub(super) fn tick(&mut self, now: Instant) {
        if let Some(found) = &mut self.found
            && found.due.is_some_and(|at| at <= now)
        {
            found.limit.on_tick(now);
            self.follow();
        }
    }

    /// When time alone may move it.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.found.as_ref()?.due
    }

    /// Takes over what the limit has come to, and notes why.
    fn follow(&mut self) {
        let Some(found) = &mut self.found else { return };
        found.due = found.limit.next_wake();
        self.most_awaiting = found.limit.first_token_limit();
        self.slots = found.limit.slots();
        let last = found.limit.last_change();
        if let Some(decision) = last.filter(|_| last != found.last_move) {
            found.last_move = last;
            // A driver that never asks for them is owed no more than these.
            if found.moves.len() < UNTOLD {
                found.moves.push(decision);
            }
        }
    }

    pub(super) fn take_moves(&mut self) -> Vec<Decision> {
        self.found.as_mut().map(|found| std::mem::take(&mut found.moves)).unwrap_or_default()
    }

    /// Beside so many in flight.
    pub(super) fn view(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView> {
        let found = self.found.as_ref()?;
        let lately = |at: Instant| now.saturating_duration_since(at) <= LATELY;
        Some(AdaptiveView {
            limit: LimitView { objective: found.objective, ..found.limit.view(now) },
            ceiling: found.ceiling,
            saturated: self.lack(in_flight).is_some() && found.limit.last_breach().is_some_and(lately),
        })
    }
}
