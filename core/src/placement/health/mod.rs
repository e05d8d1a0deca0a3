//! Whether a replica can be sent calls: a state machine of its own for each.
//!
//! ```text
//! in -> suspect -> down -> trial -> in
//!  ^------'  ^--------------'
//! ```
//!
//! - **in**: in the choice; with a growing share while it is *starting*.
//! - **suspect**: out of the choice, and nothing else. One connection refused, one probe unanswered or answered with 5xx, or [`FAULTS`] failures within [`WINDOW`].
//! - **down**: calls that it has not begun to answer are called back. Always on two pieces of evidence: a second connection refused, or a second probe that found nothing good,
//!   `down_after` from the first.
//! - **trial**: half open, one call at a time. [`GOOD`] successes end it: accepted calls, and good probes too unless it was calls that failed while probes were well.
//!
//! What speaks against it is a set of [causes](Cause), and it is back when all of them are cured. Where probes are off, and where none comes, time alone opens a trial:
//! after a second, and twice as long after each that failed, up to [`LONGEST`]. One that stayed in the choice all the while, since too many were out, needs no trial, and
//! one beside whom nobody is well starts at once: there is nobody who could take the rest.
//!
//! Probes are believed as far as they have told something. They may go another way than calls do (a proxy, a certificate, a path that nobody serves): where none was ever
//! answered well and a call is accepted, they say nothing of this replica, until one is.
//!
//! *Busy* is no illness: 503 and 429 put a replica on [`hold`].

mod causes;
mod evidence;
mod hold;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;

pub(super) use self::causes::Cause;
use self::causes::Causes;
use self::evidence::{ENOUGH, Evidence, Probes};
use self::hold::Hold;
use super::words::Fault;
use crate::duration;

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
/// How soon another probe is to look where one found nothing good.
const SOON: Duration = Duration::from_millis(50);
/// The least share of one that starts.
const LEAST_SHARE: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    In,
    Suspect,
    Down,
    Trial,
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
    causes: Causes,
    /// Since when it starts slowly.
    starting: Option<Instant>,
    /// When it last gave a sign of life.
    life: Option<Instant>,
    silent: Option<Evidence>,
    unwell: Option<Evidence>,
    refused: Option<Evidence>,
    /// The last evidence against it.
    blamed: Instant,
    /// When it last left the choice.
    left: Instant,
    /// The last failures, with the calls that had been accepted by then.
    faults: VecDeque<(Instant, u64)>,
    accepted: u64,
    probes: Probes,
    hold: Hold,
    /// Trials in a row that failed.
    failed: u32,
    /// Of the present trial.
    good: u32,
    /// Only calls end the present trial.
    by_calls: bool,
    /// The call that tries it.
    trier: Option<u64>,
    /// How often it has left the choice.
    ejections: u64,
    /// It went down, and nobody was told yet.
    fell: bool,
    /// Nothing listens there, for certain.
    over: bool,
    /// Its process ended, and nobody was told yet: what it had cached is gone.
    ended: bool,
    /// It is to be asked, so soon.
    alarmed: Option<Duration>,
    /// It stays in the choice though it is out, since too many are.
    kept: bool,
    /// Nobody else is in the choice with its whole share.
    alone: bool,
}

impl Health {
    /// One that nothing is known of is taken for well. `starts`: others run already, so it is brought in slowly.
    pub(super) fn new(now: Instant, starts: bool) -> Self {
        Self {
            state: State::In,
            causes: Causes::default(),
            starting: starts.then_some(now),
            life: None,
            silent: None,
            unwell: None,
            refused: None,
            blamed: now,
            left: now,
            faults: VecDeque::new(),
            accepted: 0,
            probes: Probes::default(),
            hold: Hold::default(),
            failed: 0,
            good: 0,
            by_calls: false,
            trier: None,
            ejections: 0,
            fell: false,
            over: false,
            ended: false,
            alarmed: None,
            kept: false,
            alone: true,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::In if self.starting.is_some() => "starting",
            State::In => "in",
            State::Suspect => "suspect",
            State::Down => "down",
            State::Trial => "trial",
        }
    }

    /// How often it has left the choice; a trial that failed counts for the time before it.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections
    }

    pub(super) fn life(&self) -> Option<Instant> {
        self.life
    }

    /// Whether what is known of it speaks against it.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.state, State::Suspect | State::Down)
    }

    /// Whether calls may go there, as far as its health goes.
    pub(super) fn is_in_choice(&self) -> bool {
        !self.is_out() || self.kept
    }

    /// Whether it is in with all of its share.
    pub(super) fn is_whole(&self) -> bool {
        self.state == State::In && self.starting.is_none()
    }

    /// Whether nothing listens there: for certain, and not by one connection, nor by what only probes say that never said anything else.
    pub(super) fn refuses(&self) -> bool {
        self.over && self.is_out()
    }

    /// Which of those that are out is the least bad: the lower. The one that gave a sign of life last, of one cause.
    pub(super) fn badness(&self) -> (Option<Cause>, std::cmp::Reverse<Option<Instant>>) {
        (self.causes.worst(), std::cmp::Reverse(self.life))
    }

    /// Whether it has asked for no calls for now, or has its one call on trial.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        self.hold.holds(now) || self.state == State::Trial && self.trier.is_some()
    }

    /// The share of its weight that is in force.
    pub(super) fn share(&self, now: Instant, terms: &Terms) -> f64 {
        match (self.state, self.starting) {
            (State::In, Some(since)) if !self.alone && !terms.slow_start.is_zero() => {
                let part =
                    now.saturating_duration_since(since).as_secs_f64() / terms.slow_start.as_secs_f64();
                part.clamp(LEAST_SHARE, 1.0)
            }
            (State::Trial, _) => LEAST_SHARE,
            _ => 1.0,
        }
    }

    /// How it stands among the others.
    pub(super) fn stands(&mut self, kept: bool, alone: bool) {
        self.kept = kept;
        self.alone = alone;
    }

    /// Whether it went down since this was last asked, and is no more in the choice.
    pub(super) fn take_fell(&mut self) -> bool {
        !self.kept && std::mem::take(&mut self.fell)
    }

    /// Whether its process ended since this was last asked.
    pub(super) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Whether something new speaks against it since this was last asked, and how soon it is to be looked at again.
    pub(super) fn take_alarmed(&mut self) -> Option<Duration> {
        self.alarmed.take()
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now: Instant, terms: &Terms) {
        if self.starting.is_some_and(|since| now >= duration::after(since, terms.slow_start)) {
            self.starting = None;
        }
        if self.state == State::Suspect && self.falls_at(terms).is_some_and(|at| now >= at) {
            self.falls();
        }
        if self.is_out() && now >= self.reopens(terms) {
            if self.kept { self.comes_in() } else { self.tries() }
        }
    }

    /// When time alone changes something.
    pub(super) fn next_wake(&self, now: Instant, terms: &Terms) -> Option<Instant> {
        // In twentieths of its whole share.
        let starts = self.starting.map(|since| {
            duration::after(since, terms.slow_start).min(duration::after(now, terms.slow_start / 20))
        });
        let state = match self.state {
            State::In | State::Trial => starts,
            State::Suspect => self.falls_at(terms).into_iter().chain([self.reopens(terms)]).min(),
            State::Down => Some(self.reopens(terms)),
        };
        state.into_iter().chain(self.hold.until(now)).min()
    }

    fn falls_at(&self, terms: &Terms) -> Option<Instant> {
        [self.silent, self.unwell]
            .into_iter()
            .flatten()
            .filter_map(|evidence| evidence.takes_down(terms.down_after))
            .min()
    }

    /// When time alone opens a trial: where probes tell something, they are waited for.
    fn reopens(&self, terms: &Terms) -> Instant {
        if terms.probes && self.probes.tell() { self.blamed + LONGEST } else { self.left + self.pause() }
    }

    fn pause(&self) -> Duration {
        (FIRST * (1 << self.failed.min(5))).min(LONGEST)
    }

    /// It sent something, whatever that was. Says whether that changed anything.
    pub(super) fn alive(&mut self, now: Instant) -> bool {
        self.life = Some(now);
        // Streams that it has begun go on though it takes no more connections, and though it says that it is unwell.
        self.cures(Causes::of([Cause::Silent]))
    }

    /// It answered what was sent then. Says whether that changed anything.
    fn answered(&mut self, now: Instant, sent: Instant) -> bool {
        self.life = Some(now);
        let since = self.refused.is_none_or(|refused| refused.last < sent);
        let cured =
            if since { Causes::of([Cause::Silent, Cause::Refused]) } else { Causes::of([Cause::Silent]) };
        self.cures(cured)
    }

    /// A probe found it well.
    pub(super) fn well(&mut self, now: Instant) {
        self.life = Some(now);
        self.probes.well();
        if self.state == State::Trial {
            if !self.by_calls {
                self.does_well(now);
            }
            return;
        }
        self.cures(Causes::of([Cause::Refused, Cause::Unwell, Cause::Silent]));
        // A probe that is well while calls fail may say so too early, as it did before.
        let pause = if self.failed == 0 { Duration::ZERO } else { self.pause() };
        if self.is_out() && now >= self.blamed + pause {
            self.recovers();
        }
    }

    /// A probe found it unwell.
    pub(super) fn unwell(&mut self, now: Instant, terms: &Terms) {
        self.life = Some(now);
        if self.probes.bad(now) {
            let evidence = Evidence::add(&mut self.unwell, now, now);
            self.doubts(now, Cause::Unwell, evidence, terms);
            // It answers.
            self.cures(Causes::of([Cause::Refused, Cause::Silent]));
        }
    }

    /// A probe that was sent then was not answered in time.
    pub(super) fn silent(&mut self, now: Instant, asked: Instant, terms: &Terms) {
        if self.life.is_none_or(|life| life < asked) && self.probes.bad(now) {
            let evidence = Evidence::add(&mut self.silent, asked, now);
            self.doubts(now, Cause::Silent, evidence, terms);
        }
    }

    /// A probe found nobody.
    pub(super) fn gone(&mut self, now: Instant) {
        if self.probes.bad(now) {
            self.refuses_one(now, self.probes.tell(), SOON);
        }
    }

    /// Something did not answer as it should have.
    fn doubts(&mut self, now: Instant, cause: Cause, evidence: Evidence, terms: &Terms) {
        self.suspects(now, cause, SOON);
        if self.state == State::Suspect && evidence.takes_down(terms.down_after).is_some_and(|at| now >= at) {
            self.falls();
        }
    }

    /// A connection was refused. `counts`: whether that is believed of itself.
    fn refuses_one(&mut self, now: Instant, counts: bool, again: Duration) {
        let evidence = Evidence::add(&mut self.refused, now, now);
        self.suspects(now, Cause::Refused, again);
        if counts && evidence.count >= ENOUGH {
            self.ended |= !self.over;
            self.over = true;
            self.hold.end();
            self.falls();
        }
    }

    /// An attempt that was sent then was accepted. Says whether that changed anything.
    pub(super) fn succeeded(&mut self, now: Instant, call: u64, sent: Instant) -> bool {
        self.accepted += 1;
        self.hold.accepted();
        let tries = self.state == State::Trial;
        if tries {
            self.ended(call);
            self.does_well(now);
        }
        self.overrules(sent) | self.answered(now, sent) | tries
    }

    /// The first token came of a call that was sent then. Says whether that changed anything.
    pub(super) fn first_token(&mut self, now: Instant, sent: Instant) -> bool {
        self.overrules(sent) | self.answered(now, sent)
    }

    /// A call went well that was sent when probes had found nothing good yet that ever did: they do not tell.
    fn overrules(&mut self, sent: Instant) -> bool {
        if self.over || !self.probes.overruled(sent) {
            return false;
        }
        // It was never out by anything that is true, unless calls failed too.
        if !self.causes.contains(Cause::Failing) && !self.by_calls {
            self.comes_in();
        }
        true
    }

    /// An attempt that was sent then failed. Returns `false` if it was turned away too long ago to count.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        call: u64,
        sent: Instant,
        fault: Fault,
        rng: &mut Rng,
    ) -> bool {
        self.ended(call);
        match fault {
            Fault::Full(asked) | Fault::Limited(asked) => {
                self.answered(now, sent);
                return self.hold.extend(now, sent, asked, rng);
            }
            Fault::Gone => self.refuses_one(now, true, Duration::ZERO),
            Fault::Unreached | Fault::Broke => self.broke(now),
        }
        true
    }

    fn broke(&mut self, now: Instant) {
        self.faults.push_back((now, self.accepted));
        if self.faults.len() > FAULTS {
            self.faults.pop_front();
        }
        let full = self.faults.front().filter(|_| self.faults.len() == FAULTS);
        let within = |(first, accepted): &(Instant, u64)| {
            now <= *first + WINDOW && self.accepted - accepted < ACCEPTED * FAULTS as u64
        };
        let fails = match self.state {
            State::Trial => true,
            State::In => full.is_some_and(within),
            State::Suspect | State::Down => false,
        };
        if fails {
            self.faults.clear();
            self.suspects(now, Cause::Failing, Duration::ZERO);
        } else {
            self.blamed = now;
        }
    }

    /// A call that is numbered so goes there.
    pub(super) fn sent(&mut self, call: u64) {
        if self.state == State::Trial {
            self.trier = Some(call);
        }
    }

    /// A call is over, whether it was heard of before or not.
    pub(super) fn ended(&mut self, call: u64) {
        if self.trier == Some(call) {
            self.trier = None;
        }
    }

    fn suspects(&mut self, now: Instant, cause: Cause, again: Duration) {
        self.blamed = now;
        if !self.causes.contains(cause) {
            self.alarmed = self.alarmed.into_iter().chain([again]).min();
        }
        self.causes = self.causes.and(cause);
        if !self.is_out() {
            self.leaves(now);
            self.state = State::Suspect;
        }
    }

    fn leaves(&mut self, now: Instant) {
        match self.state {
            State::Trial => self.failed += 1,
            _ => self.ejections += 1,
        }
        self.left = now;
        self.trier = None;
    }

    fn falls(&mut self) {
        // Once for each time that it was up: a second cause changes nothing for the calls that were there.
        self.fell |= self.state != State::Down;
        self.state = State::Down;
    }

    /// Says whether that changed anything.
    fn cures(&mut self, cured: Causes) -> bool {
        if cured.contains(Cause::Silent) {
            self.silent = None;
        }
        if cured.contains(Cause::Unwell) {
            self.unwell = None;
        }
        if cured.contains(Cause::Refused) {
            self.refused = None;
            self.over = false;
        }
        let left = self.causes.less(cured);
        if std::mem::replace(&mut self.causes, left) == left {
            return false;
        }
        match self.state {
            State::Suspect if self.causes.is_empty() && self.failed == 0 => self.comes_in(),
            State::Suspect | State::Down if self.causes.is_empty() => self.recovers(),
            _ => {}
        }
        true
    }

    /// Something says that it is well again.
    fn recovers(&mut self) {
        if self.kept || self.alone { self.comes_in() } else { self.tries() }
    }

    fn comes_in(&mut self) {
        self.state = State::In;
        self.settles();
        self.failed = 0;
        self.by_calls = false;
    }

    fn tries(&mut self) {
        self.by_calls |= self.causes.contains(Cause::Failing);
        self.state = State::Trial;
        self.settles();
        self.good = 0;
    }

    /// What was held against it was not, or is to be seen anew.
    fn settles(&mut self) {
        self.causes = Causes::default();
        self.silent = None;
        self.unwell = None;
        self.refused = None;
        self.fell = false;
        self.trier = None;
    }

    fn does_well(&mut self, now: Instant) {
        self.good += 1;
        if self.good >= GOOD {
            self.comes_in();
            self.faults.clear();
            self.over = false;
            self.starting = (!self.alone).then_some(now);
        }
    }
}
