//! Simulates one run: open-loop callers, the client's queue, the contender (the compared
//! controller) that limits the calls in flight, and the upstream.
//!
//! The queue is first come first served, and rejects calls that have waited for the maximum queue
//! wait ([`Terms::wait`](super::contender::Terms::wait)). Attempts that were rejected or broke
//! before their first token are retried, up to four attempts, after a jittered backoff. Retries are
//! sent before fresh calls, and the maximum queue wait does not apply to them. No call is sent
//! during a Retry-After, or while the token budget that the provider's headers announce is
//! exhausted. Meanwhile the queue wait of fresh calls continues to count.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate::policy::adaptive::{CallKind, Ended};

use super::client_budget::Budget;
use super::contender::{Contender, Sent};
use super::run_records::{CallOutcome, CallResult, NOTED, RunInputs, RunResult, Second};
use super::upstream::{Change, Event, Rejection, Upstream, What};
use super::workload::Arrival;
use crate::virtual_time::time_origin;

/// The time from sending an attempt until the client receives its rejection.
const ROUND_TRIP: Duration = Duration::from_millis(50);
const ATTEMPTS: u32 = 4;
const BACKOFF_S: f64 = 0.5;
/// The time since arrival after which a caller without a first token gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Rejected { id: u64, why: Rejection },
    Leaves { id: u64 },
    Again { call: usize },
    GivesUp { call: usize },
}

struct Flight {
    call: usize,
    has_token: bool,
    turned_away: bool,
}

/// Simulates one run, and returns its results. If `notes` is `true`, the results contain the
/// contender's state as a line of text every few seconds ([`Contender::note`]).
pub(crate) fn play(
    inputs: &RunInputs,
    upstream: &mut dyn Upstream,
    contender: &mut dyn Contender,
    notes: bool,
) -> RunResult {
    Run::new(inputs, upstream, contender, notes).go()
}

struct Run<'a> {
    inputs: &'a RunInputs,
    upstream: &'a mut dyn Upstream,
    contender: &'a mut dyn Contender,
    notes: bool,
    zero: Instant,
    now: Duration,
    rng: Rng,
    /// Indices of the calls that have arrived and wait for their first attempt, in order of
    /// arrival.
    fresh: VecDeque<usize>,
    /// The index of the next call to arrive.
    next: usize,
    /// Indices of the calls whose backoff is over and that wait to be sent again.
    again: BTreeSet<usize>,
    flights: HashMap<u64, Flight>,
    awaiting: usize,
    attempts_of: Vec<u32>,
    /// For each call, the id of its attempt in flight. `None` without one.
    flying: Vec<Option<u64>>,
    timers: BinaryHeap<Reverse<(Duration, Timer)>>,
    changes: &'a [(Duration, Change)],
    held_until: Duration,
    budget: Option<Budget>,
    /// The number of calls that have not ended, including those that have not arrived yet.
    open: usize,
    pressed: bool,
    played: RunResult,
}

impl<'a> Run<'a> {
    fn new(
        inputs: &'a RunInputs,
        upstream: &'a mut dyn Upstream,
        contender: &'a mut dyn Contender,
        notes: bool,
    ) -> Self {
        let count = inputs.arrivals.len();
        let open = CallResult { how: CallOutcome::Open, sent: None, first_token: None };
        Self {
            inputs,
            upstream,
            contender,
            notes,
            zero: time_origin(),
            now: Duration::ZERO,
            rng: Rng::with_seed(inputs.seed.wrapping_add(77)),
            fresh: VecDeque::new(),
            next: 0,
            again: BTreeSet::new(),
            flights: HashMap::new(),
            awaiting: 0,
            attempts_of: vec![0; count],
            flying: vec![None; count],
            timers: BinaryHeap::new(),
            changes: &inputs.changes,
            held_until: Duration::ZERO,
            budget: inputs.budget.map(Budget::new),
            open: count,
            pressed: false,
            played: RunResult {
                results: vec![open; count],
                seconds: Vec::new(),
                attempts: 0,
                rejected: 0,
                notes: Vec::new(),
            },
        }
    }

    fn go(mut self) -> RunResult {
        let mut events = Vec::new();
        while self.open > 0 {
            let Some(at) = self.next_moment() else { break };
            self.pass(at);
            while let Some(((_, change), rest)) =
                self.changes.split_first().filter(|((at, _), _)| *at <= self.now)
            {
                self.upstream.change(self.now, *change);
                self.changes = rest;
            }
            self.upstream.advance(self.now, &mut events);
            for event in events.drain(..) {
                self.happened(event);
            }
            while let Some(Reverse((_, timer))) =
                self.timers.peek().copied().filter(|Reverse((at, _))| *at <= self.now)
            {
                self.timers.pop();
                self.rang(timer);
            }
            self.arrive();
            if self.contender.next_wake().is_some_and(|wake| wake <= self.instant()) {
                self.contender.tick(self.instant());
            }
            self.refuse();
            self.contender.queued(self.instant(), self.fresh.len() + self.again.len());
            self.admit();
        }
        self.played
    }

    fn instant(&self) -> Instant {
        self.zero + self.now
    }

    fn arrival(&self, call: usize) -> Arrival {
        self.inputs.arrivals[call]
    }

    fn next_moment(&self) -> Option<Duration> {
        // A wake-up in the past is delayed to one millisecond from now.
        let wake = self
            .contender
            .next_wake()
            .map(|wake| wake.saturating_duration_since(self.zero).max(self.now + Duration::from_millis(1)));
        let held = Some(self.held_until).filter(|until| *until > self.now);
        [
            self.inputs.arrivals.get(self.next).map(|arrival| arrival.at),
            self.timers.peek().map(|Reverse((at, _))| *at),
            self.upstream.next_event(),
            self.fresh.front().map(|call| self.arrival(*call).at + self.inputs.terms.wait),
            self.changes.first().map(|(at, _)| *at),
            wake,
            held,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|at| at.max(self.now))
    }

    /// Advances the time to `at`, and records the state at the end of each second until then.
    fn pass(&mut self, at: Duration) {
        while self.played.seconds.len() < at.min(self.inputs.until).as_secs() as usize {
            let waiting = self.fresh.len() + self.again.len();
            let held = self.held_until > self.now;
            let pressed = std::mem::take(&mut self.pressed) || (waiting > 0 && !held);
            let (limit, bound) = (self.contender.limit(), self.contender.awaiting());
            let (in_flight, awaiting) = (self.flights.len(), self.awaiting);
            self.played.seconds.push(Second { limit, bound, in_flight, awaiting, waiting, held, pressed });
            let seconds = self.played.seconds.len();
            if self.notes && seconds.is_multiple_of(NOTED) {
                self.played.notes.push(self.contender.note(self.instant()));
            }
        }
        self.now = at;
    }

    fn happened(&mut self, event: Event) {
        let Some(flight) = self.flights.get_mut(&event.id) else { return };
        let call = flight.call;
        let streams = self.inputs.arrivals[call].streams;
        match event.what {
            What::FirstToken => {
                flight.has_token = true;
                self.read_headers();
                self.played.results[call].first_token = Some(event.at);
                if streams {
                    self.awaiting -= 1;
                    self.contender.first_token(self.zero + self.now, event.id);
                }
            }
            What::Finished => {
                let output = u64::from(self.arrival(call).work.output);
                self.end_attempt(event.id, Ended::Completed { output });
                self.end(call, CallOutcome::Served);
            }
            What::Broken => {
                let has_token = flight.has_token;
                self.end_attempt(event.id, Ended::Failed);
                if has_token {
                    self.end(call, CallOutcome::Broken);
                } else {
                    self.try_again(call, CallOutcome::Broken, None);
                }
            }
        }
    }

    fn rang(&mut self, timer: Timer) {
        match timer {
            Timer::Rejected { id, why } => {
                self.played.rejected += 1;
                self.read_headers();
                let Some(call) = self.flights.get(&id).map(|flight| flight.call) else { return };
                let (how, retry_after) = match why {
                    Rejection::Limited { retry_after } => {
                        (Ended::Limited { by_rate: retry_after.is_some() }, retry_after)
                    }
                    Rejection::Overloaded => (Ended::Overloaded, None),
                };
                self.end_attempt(id, how);
                if let Some(wait) = retry_after {
                    self.held_until = self.held_until.max(self.now + wait);
                }
                self.try_again(call, CallOutcome::TurnedAway, retry_after);
            }
            Timer::Leaves { id } => self.give_up(id, Ended::Cancelled, CallOutcome::Left),
            Timer::Again { call } => {
                if self.played.results[call].how == CallOutcome::Open {
                    self.again.insert(call);
                }
            }
            Timer::GivesUp { call } => match self.flying[call] {
                Some(id) => self.give_up(id, Ended::DeadlinePassed, CallOutcome::TimedOut),
                None if self.played.results[call].how == CallOutcome::Open => {
                    self.again.remove(&call);
                    self.end(call, CallOutcome::TurnedAway);
                }
                None => {}
            },
        }
    }

    /// Sets the client's token budget to the remaining tokens that the provider announces in its
    /// response headers. Does nothing if the provider announces none.
    fn read_headers(&mut self) {
        if let (Some(budget), Some(remaining)) = (&mut self.budget, self.upstream.remaining(self.now)) {
            budget.on_remaining(self.now, remaining);
        }
    }

    /// Cancels an attempt and ends its call. Does nothing if the upstream has already produced the
    /// attempt's first token.
    ///
    /// The condition also applies to answers that do not stream, although their callers cannot see
    /// the first token. So all callers wait equally long.
    fn give_up(&mut self, id: u64, ended: Ended, how: CallOutcome) {
        let Some(flight) = self.flights.get(&id).filter(|flight| !flight.has_token) else { return };
        let (call, turned_away) = (flight.call, flight.turned_away);
        if !turned_away {
            self.upstream.abort(self.now, id);
        }
        self.end_attempt(id, ended);
        self.end(call, how);
    }

    /// Removes an attempt that has ended, and reports its end to the contender. The call itself is
    /// still open: the caller of this function ends or retries it.
    fn end_attempt(&mut self, id: u64, how: Ended) {
        let Some(flight) = self.flights.remove(&id) else { return };
        let awaits = self.arrival(flight.call).streams && !flight.has_token;
        self.awaiting -= usize::from(awaits);
        self.flying[flight.call] = None;
        self.contender.ended(self.zero + self.now, id, how);
    }

    fn end(&mut self, call: usize, how: CallOutcome) {
        self.played.results[call].how = how;
        self.open -= 1;
    }

    fn try_again(&mut self, call: usize, or: CallOutcome, retry_after: Option<Duration>) {
        let made = self.attempts_of[call];
        if made >= ATTEMPTS {
            return self.end(call, or);
        }
        let most = BACKOFF_S * f64::from(1 << (made - 1));
        let backoff = Duration::from_secs_f64(most * (0.5 + 0.5 * self.rng.f64()));
        let at = self.now + retry_after.unwrap_or_default().max(backoff);
        self.timers.push(Reverse((at, Timer::Again { call })));
    }

    fn arrive(&mut self) {
        while let Some(arrival) = self.inputs.arrivals.get(self.next).filter(|arrival| arrival.at <= self.now)
        {
            self.timers.push(Reverse((arrival.at + PATIENCE, Timer::GivesUp { call: self.next })));
            self.fresh.push_back(self.next);
            self.next += 1;
        }
    }

    fn refuse(&mut self) {
        let wait = self.inputs.terms.wait;
        while let Some(call) =
            self.fresh.front().copied().filter(|call| self.arrival(*call).at + wait <= self.now)
        {
            self.fresh.pop_front();
            self.end(call, CallOutcome::Refused);
        }
    }

    fn admit(&mut self) {
        while self.held_until <= self.now && self.has_room() {
            let Some(call) = self.again.first().or_else(|| self.fresh.front()).copied() else { return };
            let expected = f64::from(self.arrival(call).work.prompt) + self.inputs.expected_output as f64;
            if let Some(budget) = &mut self.budget {
                let wait = budget.wait(self.now, expected);
                if wait > Duration::ZERO {
                    self.held_until = self.now + wait;
                    return;
                }
                budget.take(expected);
            }
            if self.again.pop_first().is_none() {
                self.fresh.pop_front();
            }
            self.send(call);
        }
        self.pressed |= !(self.again.is_empty() && self.fresh.is_empty()) && self.held_until <= self.now;
    }

    fn has_room(&self) -> bool {
        self.flights.len() < self.contender.limit() && self.awaiting < self.contender.awaiting()
    }

    fn send(&mut self, call: usize) {
        let arrival = self.arrival(call);
        let id = self.played.attempts;
        self.played.attempts += 1;
        self.attempts_of[call] += 1;
        self.played.results[call].sent = Some(self.now);
        self.flying[call] = Some(id);
        self.awaiting += usize::from(arrival.streams);
        let answer = self.upstream.submit(self.now, id, arrival.work);
        self.flights.insert(id, Flight { call, has_token: false, turned_away: answer.is_err() });
        if let Err(why) = answer {
            self.timers.push(Reverse((self.now + ROUND_TRIP, Timer::Rejected { id, why })));
        }
        if let Some(after) = arrival.leaves {
            self.timers.push(Reverse((self.now + after, Timer::Leaves { id })));
        }
        let kind = CallKind {
            input: u64::from(arrival.work.prompt),
            output: self.inputs.expected_output,
            streams: arrival.streams,
        };
        let (waited, in_flight) = (self.now - arrival.at, self.flights.len());
        self.contender.sent(self.instant(), Sent { id, kind, waited, in_flight });
    }
}

#[cfg(test)]
mod tests;
