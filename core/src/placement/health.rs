//! Whether a replica can be sent calls: a state machine of its own for each.
//!
//! ```text
//! in -> suspect -> down -> trial -> starting -> in
//!        |  ^--------------'  |
//!        '-> in               '-> in, without slow start
//! ```
//!
//! - **in**, **starting**: in the choice; starting, with a growing share.
//! - **suspect**: out of the choice, and nothing else. One connection refused, one probe unanswered or answered with 5xx, or [`FAULTS`] failures within [`WINDOW`].
//! - **down**: calls that it has not begun to answer are called back. A second connection refused, or nothing good for `down_after`.
//! - **trial**: half open, one call at a time. [`GOOD`] successes end it: accepted calls, and good probes too unless it was calls that failed while probes were well.
//!
//! Any byte from a replica is a sign of life; one that fell silent, or said that it is unwell, is back with it. Where probes are off, and where none comes, time alone
//! opens a trial: after a second, and twice as long after each that failed, up to [`LONGEST`].
//!
//! *Busy* is no illness: 503 and 429 put a replica on hold, for as long as it says, else for a moment that grows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::words::Fault;

/// So many failures ...
const FAULTS: usize = 5;
/// ... within so long are evidence against a replica ...
const WINDOW: Duration = Duration::from_secs(60);
/// ... unless so many calls of the same time were accepted for each of them.
const ACCEPTED: u64 = 4;
/// Successes that end a trial.
const GOOD: u32 = 2;
/// How long a replica is out before time alone opens a trial; the first time, where there are no probes.
const FIRST: Duration = Duration::from_secs(1);
/// The same at most, and where there are probes.
const LONGEST: Duration = Duration::from_secs(30);
/// How long a replica that has no room is left alone, if it does not say.
const HOLD: Duration = Duration::from_millis(100);
/// The longest that grows.
const LONGEST_HOLD: Duration = Duration::from_millis(500);
/// A replica that asks for more is not believed: its pool has others to ask.
const LONGEST_ASKED: Duration = Duration::from_secs(3_600);
/// The least share of one that starts.
const LEAST_SHARE: f64 = 0.1;

/// Why a replica is out of the choice, the least bad first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// Calls fail there.
    Failing,
    /// It says so.
    Unwell,
    /// It does not answer.
    Silent,
    /// Nothing listens there.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    In,
    Starting(Instant),
    Suspect(Cause),
    Down(Cause),
    Trial(Cause),
}

/// The times that are configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) probes: bool,
    pub(super) down_after: Duration,
    pub(super) slow_start: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Health {
    state: State,
    /// When it last gave a sign of life.
    life: Option<Instant>,
    /// Since when nothing good came, where something should have.
    missed: Option<Instant>,
    /// The last evidence against it.
    blamed: Instant,
    /// The last failures, with the calls that had been accepted by then.
    faults: VecDeque<(Instant, u64)>,
    accepted: u64,
    hold: Option<Instant>,
    /// Holds in a row for which it named no time.
    held: u32,
    /// Trials in a row that failed.
    failed: u32,
    /// Of the present trial.
    good: u32,
    /// The call that tries it.
    trier: Option<u64>,
    /// It went down, and nobody was told yet.
    fell: bool,
    /// Its process ended: what it had cached is gone.
    ended: bool,
    /// Something speaks against it that did not before: it is to be asked at once.
    alarmed: bool,
}

impl Health {
    /// One that nothing is known of is taken for well. `starts`: others run already, so it is brought in slowly.
    pub(super) fn new(now: Instant, starts: bool) -> Self {
        Self {
            state: if starts { State::Starting(now) } else { State::In },
            life: None,
            missed: None,
            blamed: now,
            faults: VecDeque::new(),
            accepted: 0,
            hold: None,
            held: 0,
            failed: 0,
            good: 0,
            trier: None,
            fell: false,
            ended: false,
            alarmed: false,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::In => "in",
            State::Starting(_) => "starting",
            State::Suspect(_) => "suspect",
            State::Down(_) => "down",
            State::Trial(_) => "trial",
        }
    }

    pub(super) fn life(&self) -> Option<Instant> {
        self.life
    }

    /// Why it is out of the choice, if it is.
    pub(super) fn out(&self) -> Option<Cause> {
        match self.state {
            State::Suspect(cause) | State::Down(cause) => Some(cause),
            State::In | State::Starting(_) | State::Trial(_) => None,
        }
    }

    /// Which of those that are out is the least bad: the lower. The one that gave a sign of life last, of one cause.
    pub(super) fn badness(&self) -> (Option<Cause>, std::cmp::Reverse<Option<Instant>>) {
        (self.out(), std::cmp::Reverse(self.life))
    }

    /// Whether it has asked for no calls for now, or has its one call on trial.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        self.hold.is_some_and(|until| now < until)
            || matches!(self.state, State::Trial(_)) && self.trier.is_some()
    }

    /// The share of its weight that is in force.
    pub(super) fn share(&self, now: Instant, terms: &Terms) -> f64 {
        match self.state {
            State::Starting(since) if !terms.slow_start.is_zero() => {
                let part =
                    now.saturating_duration_since(since).as_secs_f64() / terms.slow_start.as_secs_f64();
                part.clamp(LEAST_SHARE, 1.0)
            }
            State::Trial(_) => LEAST_SHARE,
            _ => 1.0,
        }
    }

    /// Whether it went down since this was last asked.
    pub(super) fn take_fell(&mut self) -> bool {
        std::mem::take(&mut self.fell)
    }

    /// Whether its process ended since this was last asked.
    pub(super) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Whether it became suspect since this was last asked.
    pub(super) fn take_alarmed(&mut self) -> bool {
        std::mem::take(&mut self.alarmed)
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now: Instant, terms: &Terms) {
        match self.state {
            State::Starting(since) if now >= since + terms.slow_start => self.state = State::In,
            State::Suspect(cause @ (Cause::Silent | Cause::Unwell))
                if self.missed.is_some_and(|missed| now >= missed + terms.down_after) =>
            {
                self.falls(cause);
            }
            State::Suspect(_) | State::Down(_) if self.reopens(terms).is_some_and(|at| now >= at) => {
                self.tries();
            }
            _ => {}
        }
    }

    /// When time alone changes something.
    pub(super) fn next_wake(&self, now: Instant, terms: &Terms) -> Option<Instant> {
        let state = match self.state {
            // In twentieths of its whole share.
            State::Starting(since) => Some((since + terms.slow_start).min(now + terms.slow_start / 20)),
            State::Suspect(Cause::Silent | Cause::Unwell) => {
                let falls = self.missed.map(|missed| missed + terms.down_after);
                falls.into_iter().chain(self.reopens(terms)).min()
            }
            State::Suspect(_) | State::Down(_) => self.reopens(terms),
            State::In | State::Trial(_) => None,
        };
        let hold = self.hold.filter(|until| *until > now);
        state.into_iter().chain(hold).min()
    }

    /// When time alone opens a trial.
    fn reopens(&self, terms: &Terms) -> Option<Instant> {
        let after = if terms.probes { LONGEST } else { self.pause() };
        Some(self.blamed + after)
    }

    fn pause(&self) -> Duration {
        (FIRST * (1 << self.failed.min(5))).min(LONGEST)
    }

    /// It sent something, whatever that was.
    pub(super) fn alive(&mut self, now: Instant) {
        self.life = Some(now);
        match self.state {
            // Streams that it has begun go on though it takes no more connections, and calls may fail though it is alive.
            State::Suspect(Cause::Refused | Cause::Failing)
            | State::Down(Cause::Refused | Cause::Failing) => {}
            State::Suspect(_) => {
                self.missed = None;
                self.state = State::In;
            }
            State::Down(_) => {
                self.missed = None;
                self.tries();
            }
            State::In | State::Starting(_) | State::Trial(_) => self.missed = None,
        }
    }

    /// A probe found it well.
    pub(super) fn well(&mut self, now: Instant, terms: &Terms) {
        self.life = Some(now);
        self.missed = None;
        match self.state {
            // It was one connection, or one answer.
            State::Suspect(Cause::Refused | Cause::Unwell | Cause::Silent) => self.state = State::In,
            // A probe that is well while calls fail may say so too early, as it did before.
            State::Suspect(Cause::Failing) | State::Down(Cause::Failing) => {
                let pause = if self.failed == 0 { Duration::ZERO } else { self.pause() };
                if now >= self.blamed + pause {
                    self.tries();
                }
            }
            State::Down(_) => self.tries(),
            State::Trial(Cause::Failing) | State::In | State::Starting(_) => {}
            State::Trial(_) => self.does_well(now, terms),
        }
    }

    /// A probe found it unwell.
    pub(super) fn unwell(&mut self, now: Instant, terms: &Terms) {
        self.life = Some(now);
        self.misses(now, now, Cause::Unwell, terms);
    }

    /// A probe that was sent then was not answered in time.
    pub(super) fn silent(&mut self, now: Instant, asked: Instant, terms: &Terms) {
        if self.life.is_none_or(|life| life < asked) {
            self.misses(now, asked, Cause::Silent, terms);
        }
    }

    /// A probe found nobody.
    pub(super) fn gone(&mut self, now: Instant) {
        self.blamed = now;
        self.falls_for_good(now);
    }

    fn misses(&mut self, now: Instant, since: Instant, cause: Cause, terms: &Terms) {
        self.blamed = now;
        let since = *self.missed.get_or_insert(since);
        match self.state {
            State::Trial(_) => {
                self.failed += 1;
                self.falls(cause);
            }
            // Nobody refuses connections any more.
            State::Down(Cause::Refused) => self.state = State::Down(cause),
            State::Down(_) => {}
            State::In | State::Starting(_) | State::Suspect(_) => {
                self.suspects(cause);
                if now >= since + terms.down_after {
                    self.falls(cause);
                }
            }
        }
    }

    /// An attempt there was accepted.
    pub(super) fn succeeded(&mut self, now: Instant, terms: &Terms) {
        self.accepted += 1;
        self.held = 0;
        self.life = Some(now);
        self.missed = None;
        match self.state {
            State::Trial(_) => {
                self.trier = None;
                self.does_well(now, terms);
            }
            State::Suspect(Cause::Failing) | State::Down(Cause::Failing) => {}
            _ => self.alive(now),
        }
    }

    /// An attempt there failed.
    pub(super) fn failed(&mut self, now: Instant, fault: Fault, rng: &mut Rng) {
        self.trier = None;
        match fault {
            Fault::Full(delay) | Fault::Limited(delay) => {
                // It answers.
                self.alive(now);
                let delay = delay.unwrap_or_else(|| {
                    self.held = self.held.saturating_add(1);
                    let most = (HOLD * (1 << self.held.min(4)) / 2).min(LONGEST_HOLD);
                    most.mul_f64(0.5 + 0.5 * rng.f64())
                });
                self.hold = self.hold.max(Some(now + delay.min(LONGEST_ASKED)));
            }
            Fault::Gone => {
                self.blamed = now;
                match self.state {
                    State::In | State::Starting(_) => self.suspects(Cause::Refused),
                    _ => self.falls_for_good(now),
                }
            }
            Fault::Broke => self.broke(now),
        }
    }

    fn broke(&mut self, now: Instant) {
        self.blamed = now;
        self.faults.push_back((now, self.accepted));
        if self.faults.len() > FAULTS {
            self.faults.pop_front();
        }
        match self.state {
            State::Trial(cause) => {
                self.failed += 1;
                self.suspects(cause.min(Cause::Failing));
            }
            State::In | State::Starting(_) => {
                let full = self.faults.front().filter(|_| self.faults.len() == FAULTS);
                let within = |(first, accepted): &(Instant, u64)| {
                    now <= *first + WINDOW && self.accepted - accepted < ACCEPTED * FAULTS as u64
                };
                if full.is_some_and(within) {
                    self.faults.clear();
                    self.suspects(Cause::Failing);
                }
            }
            State::Suspect(_) | State::Down(_) => {}
        }
    }

    /// A call that is numbered so goes there.
    pub(super) fn sent(&mut self, call: u64) {
        if matches!(self.state, State::Trial(_)) {
            self.trier = Some(call);
        }
    }

    /// A call is over, whether it was heard of before or not.
    pub(super) fn ended(&mut self, call: u64) {
        if self.trier == Some(call) {
            self.trier = None;
        }
    }

    fn suspects(&mut self, cause: Cause) {
        self.alarmed |= !matches!(self.state, State::Suspect(_));
        self.state = State::Suspect(cause);
    }

    fn falls_for_good(&mut self, now: Instant) {
        self.missed.get_or_insert(now);
        if matches!(self.state, State::Trial(_)) {
            self.failed += 1;
        }
        self.ended = true;
        self.falls(Cause::Refused);
    }

    fn falls(&mut self, cause: Cause) {
        // Once for each time that it was up: a second cause changes nothing for the calls that were there.
        self.fell |= !matches!(self.state, State::Down(_));
        self.state = State::Down(cause);
        self.trier = None;
    }

    fn tries(&mut self) {
        let Some(cause) = self.out() else { return };
        self.state = State::Trial(cause);
        self.missed = None;
        self.good = 0;
        self.trier = None;
    }

    fn does_well(&mut self, now: Instant, terms: &Terms) {
        self.good += 1;
        if self.good >= GOOD {
            self.failed = 0;
            self.faults.clear();
            self.state = if terms.slow_start.is_zero() { State::In } else { State::Starting(now) };
        }
    }
}
