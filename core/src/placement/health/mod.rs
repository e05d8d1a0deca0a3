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

mod busy;
mod causes;
mod evidence;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::busy::BusyPeriod;
pub(super) use self::causes::Cause;
use self::causes::Causes;
use self::evidence::{ENOUGH, Evidence, Probes};
use super::types::Fault;
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
pub(super) enum HealthState {
    In,
    Suspect,
    Down,
    Trial,
}

/// The times that are configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct HealthSettings {
    pub(super) probes: bool,
    pub(super) down_after: Duration,
    pub(super) slow_start: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Health {
    state: HealthState,
    causes: Causes,
    /// Since when it starts slowly.
    starting: Option<Instant>,
    /// When it last gave a sign of life.
    last_alive: Option<Instant>,
    silent: Option<Evidence>,
    unwell: Option<Evidence>,
    refused: Option<Evidence>,
    /// The last evidence against it.
    last_evidence: Instant,
    /// When it last left the choice.
    left: Instant,
    /// The last failures, with the calls that had been accepted by then.
    faults: VecDeque<(Instant, u64)>,
    accepted: u64,
    probes: Probes,
    busy: BusyPeriod,
    /// Trials in a row that failed.
    failed: u32,
    /// Of the present trial.
    good: u32,
    /// Only calls end the present trial.
    by_calls: bool,
    /// The call that tries it.
    trial_call: Option<u64>,
    /// How often it has left the choice.
    ejections: u64,
    /// It went down, and nobody was told yet.
    went_down: bool,
    /// Nothing listens there, for certain.
    is_refused: bool,
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
            state: HealthState::In,
            causes: Causes::default(),
            starting: starts.then_some(now),
            last_alive: None,
            silent: None,
            unwell: None,
            refused: None,
            last_evidence: now,
            left: now,
            faults: VecDeque::new(),
            accepted: 0,
            probes: Probes::default(),
            busy: BusyPeriod::default(),
            failed: 0,
            good: 0,
            by_calls: false,
            trial_call: None,
            ejections: 0,
            went_down: false,
            is_refused: false,
            ended: false,
            alarmed: None,
            kept: false,
            alone: true,
        }
    }

    pub(super) fn state(&self) -> HealthState {
        self.state
    }

    pub(super) fn name(&self) -> &'static str {
        match self.state {
            HealthState::In if self.starting.is_some() => "starting",
            HealthState::In => "in",
            HealthState::Suspect => "suspect",
            HealthState::Down => "down",
            HealthState::Trial => "trial",
        }
    }

    /// How often it has left the choice; a trial that failed counts for the time before it.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections
    }

    pub(super) fn last_alive(&self) -> Option<Instant> {
        self.last_alive
    }

    /// Whether what is known of it speaks against it.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.state, HealthState::Suspect | HealthState::Down)
    }

    /// Whether calls may go there, as far as its health goes.
    pub(super) fn is_eligible(&self) -> bool {
        !self.is_out() || self.kept
    }

    /// Whether it is in with all of its share.
    pub(super) fn is_whole(&self) -> bool {
        self.state == HealthState::In && self.starting.is_none()
    }

    /// Whether nothing listens there: for certain, and not by one connection, nor by what only probes say that never said anything else.
    pub(super) fn is_refusing(&self) -> bool {
        self.is_refused && self.is_out()
    }

    /// Which of those that are out is the least bad: the lower. The one that gave a sign of life last, of one cause.
    pub(super) fn badness(&self) -> (Option<Cause>, std::cmp::Reverse<Option<Instant>>) {
        (self.causes.worst(), std::cmp::Reverse(self.last_alive))
    }

    /// Whether it has asked for no calls for now, or has its one call on trial.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.busy.holds(now) || self.state == HealthState::Trial && self.trial_call.is_some()
    }

    /// The share of its weight that is in force.
    pub(super) fn share(&self, now: Instant, settings: &HealthSettings) -> f64 {
        match (self.state, self.starting) {
            (HealthState::In, Some(since)) if !self.alone && !settings.slow_start.is_zero() => {
                let part =
                    now.saturating_duration_since(since).as_secs_f64() / settings.slow_start.as_secs_f64();
                part.clamp(LEAST_SHARE, 1.0)
            }
            (HealthState::Trial, _) => LEAST_SHARE,
            _ => 1.0,
        }
    }

    /// How it stands among the others.
    pub(super) fn update_exemption(&mut self, kept: bool, alone: bool) {
        self.kept = kept;
        self.alone = alone;
    }

    /// Whether it went down since this was last asked, and is no more in the choice.
    pub(super) fn take_went_down(&mut self) -> bool {
        !self.kept && std::mem::take(&mut self.went_down)
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
    pub(super) fn tick(&mut self, now: Instant, settings: &HealthSettings) {
        if self.starting.is_some_and(|since| now >= duration::after(since, settings.slow_start)) {
            self.starting = None;
        }
        if self.state == HealthState::Suspect && self.down_at(settings).is_some_and(|at| now >= at) {
            self.go_down();
        }
        if self.is_out() && now >= self.reopens(settings) {
            if self.kept { self.reinstate() } else { self.open_trial() }
        }
    }

    /// When time alone changes something.
    pub(super) fn next_wake(&self, now: Instant, settings: &HealthSettings) -> Option<Instant> {
        // In twentieths of its whole share.
        let starts = self.starting.map(|since| {
            duration::after(since, settings.slow_start).min(duration::after(now, settings.slow_start / 20))
        });
        let state = match self.state {
            HealthState::In | HealthState::Trial => starts,
            HealthState::Suspect => self.down_at(settings).into_iter().chain([self.reopens(settings)]).min(),
            HealthState::Down => Some(self.reopens(settings)),
        };
        state.into_iter().chain(self.busy.until(now)).min()
    }

    fn down_at(&self, settings: &HealthSettings) -> Option<Instant> {
        [self.silent, self.unwell]
            .into_iter()
            .flatten()
            .filter_map(|evidence| evidence.takes_down(settings.down_after))
            .min()
    }

    /// When time alone opens a trial: where probes tell something, they are waited for.
    fn reopens(&self, settings: &HealthSettings) -> Instant {
        if settings.probes && self.probes.tell() {
            self.last_evidence + LONGEST
        } else {
            self.left + self.pause()
        }
    }

    fn pause(&self) -> Duration {
        (FIRST * (1 << self.failed.min(5))).min(LONGEST)
    }

    /// It sent something, whatever that was. Says whether that changed anything.
    pub(super) fn on_alive(&mut self, now: Instant) -> bool {
        self.last_alive = Some(now);
        // Streams that it has begun go on though it takes no more connections, and though it says that it is unwell.
        self.cure(Causes::of([Cause::Silent]))
    }

    /// It answered what was sent then. Says whether that changed anything.
    fn answered(&mut self, now: Instant, sent: Instant) -> bool {
        self.last_alive = Some(now);
        let since = self.refused.is_none_or(|refused| refused.last < sent);
        let cured =
            if since { Causes::of([Cause::Silent, Cause::Refused]) } else { Causes::of([Cause::Silent]) };
        self.cure(cured)
    }

    /// A probe found it well.
    pub(super) fn on_probe_ok(&mut self, now: Instant) {
        self.last_alive = Some(now);
        self.probes.well();
        if self.state == HealthState::Trial {
            if !self.by_calls {
                self.on_trial_success(now);
            }
            return;
        }
        self.cure(Causes::of([Cause::Refused, Cause::Unwell, Cause::Silent]));
        // A probe that is well while calls fail may say so too early, as it did before.
        let pause = if self.failed == 0 { Duration::ZERO } else { self.pause() };
        if self.is_out() && now >= self.last_evidence + pause {
            self.recover();
        }
    }

    /// A probe found it unwell.
    pub(super) fn on_probe_failed(&mut self, now: Instant, settings: &HealthSettings) {
        self.last_alive = Some(now);
        if self.probes.bad(now) {
            let evidence = Evidence::add(&mut self.unwell, now, now);
            self.on_bad_probe(now, Cause::Unwell, evidence, settings);
            // It answers.
            self.cure(Causes::of([Cause::Refused, Cause::Silent]));
        }
    }

    /// A probe that was sent then was not answered in time.
    pub(super) fn on_timeout(&mut self, now: Instant, asked: Instant, settings: &HealthSettings) {
        if self.last_alive.is_none_or(|last_alive| last_alive < asked) && self.probes.bad(now) {
            let evidence = Evidence::add(&mut self.silent, asked, now);
            self.on_bad_probe(now, Cause::Silent, evidence, settings);
        }
    }

    /// A probe found nobody.
    pub(super) fn on_refused(&mut self, now: Instant) {
        if self.probes.bad(now) {
            self.on_connect_refused(now, self.probes.tell(), SOON);
        }
    }

    /// Something did not answer as it should have.
    fn on_bad_probe(&mut self, now: Instant, cause: Cause, evidence: Evidence, settings: &HealthSettings) {
        self.suspect(now, cause, SOON);
        if self.state == HealthState::Suspect
            && evidence.takes_down(settings.down_after).is_some_and(|at| now >= at)
        {
            self.go_down();
        }
    }

    /// A connection was refused. `counts`: whether that is believed of itself.
    fn on_connect_refused(&mut self, now: Instant, counts: bool, again: Duration) {
        let evidence = Evidence::add(&mut self.refused, now, now);
        self.suspect(now, Cause::Refused, again);
        if counts && evidence.count >= ENOUGH {
            self.ended |= !self.is_refused;
            self.is_refused = true;
            self.busy.end();
            self.go_down();
        }
    }

    /// An attempt that was sent then was accepted. Says whether that changed anything.
    pub(super) fn succeeded(&mut self, now: Instant, call: u64, sent: Instant) -> bool {
        self.accepted += 1;
        self.busy.accepted();
        let tries = self.state == HealthState::Trial;
        if tries {
            self.ended(call);
            self.on_trial_success(now);
        }
        self.overrule_probes(sent) | self.answered(now, sent) | tries
    }

    /// The first token came of a call that was sent then. Says whether that changed anything.
    pub(super) fn first_token(&mut self, now: Instant, sent: Instant) -> bool {
        self.overrule_probes(sent) | self.answered(now, sent)
    }

    /// A call went well that was sent when probes had found nothing good yet that ever did: they do not tell.
    fn overrule_probes(&mut self, sent: Instant) -> bool {
        if self.is_refused || !self.probes.overruled(sent) {
            return false;
        }
        // It was never out by anything that is true, unless calls failed too.
        if !self.causes.contains(Cause::Failing) && !self.by_calls {
            self.reinstate();
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
                return self.busy.extend(now, sent, asked, rng);
            }
            Fault::ConnectRefused => self.on_connect_refused(now, true, Duration::ZERO),
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
            HealthState::Trial => true,
            HealthState::In => full.is_some_and(within),
            HealthState::Suspect | HealthState::Down => false,
        };
        if fails {
            self.faults.clear();
            self.suspect(now, Cause::Failing, Duration::ZERO);
        } else {
            self.last_evidence = now;
        }
    }

    /// A call that is numbered so goes there.
    pub(super) fn sent(&mut self, call: u64) {
        if self.state == HealthState::Trial {
            self.trial_call = Some(call);
        }
    }

    /// A call is over, whether it was heard of before or not.
    pub(super) fn ended(&mut self, call: u64) {
        if self.trial_call == Some(call) {
            self.trial_call = None;
        }
    }

    fn suspect(&mut self, now: Instant, cause: Cause, again: Duration) {
        self.last_evidence = now;
        if !self.causes.contains(cause) {
            self.alarmed = self.alarmed.into_iter().chain([again]).min();
        }
        self.causes = self.causes.and(cause);
        if !self.is_out() {
            self.leave(now);
            self.state = HealthState::Suspect;
        }
    }

    fn leave(&mut self, now: Instant) {
        match self.state {
            HealthState::Trial => self.failed += 1,
            _ => self.ejections += 1,
        }
        self.left = now;
        self.trial_call = None;
    }

    fn go_down(&mut self) {
        // Once for each time that it was up: a second cause changes nothing for the calls that were there.
        self.went_down |= self.state != HealthState::Down;
        self.state = HealthState::Down;
    }

    /// Says whether that changed anything.
    fn cure(&mut self, cured: Causes) -> bool {
        if cured.contains(Cause::Silent) {
            self.silent = None;
        }
        if cured.contains(Cause::Unwell) {
            self.unwell = None;
        }
        if cured.contains(Cause::Refused) {
            self.refused = None;
            self.is_refused = false;
        }
        let left = self.causes.less(cured);
        if std::mem::replace(&mut self.causes, left) == left {
            return false;
        }
        match self.state {
            HealthState::Suspect if self.causes.is_empty() && self.failed == 0 => self.reinstate(),
            HealthState::Suspect | HealthState::Down if self.causes.is_empty() => self.recover(),
            _ => {}
        }
        true
    }

    /// Something says that it is well again.
    fn recover(&mut self) {
        if self.kept || self.alone { self.reinstate() } else { self.open_trial() }
    }

    fn reinstate(&mut self) {
        self.state = HealthState::In;
        self.end_trial();
        self.failed = 0;
        self.by_calls = false;
    }

    fn open_trial(&mut self) {
        self.by_calls |= self.causes.contains(Cause::Failing);
        self.state = HealthState::Trial;
        self.end_trial();
        self.good = 0;
    }

    /// What was held against it was not, or is to be seen anew.
    fn end_trial(&mut self) {
        self.causes = Causes::default();
        self.silent = None;
        self.unwell = None;
        self.refused = None;
        self.went_down = false;
        self.trial_call = None;
    }

    fn on_trial_success(&mut self, now: Instant) {
        self.good += 1;
        if self.good >= GOOD {
            self.reinstate();
            self.faults.clear();
            self.is_refused = false;
            self.starting = (!self.alone).then_some(now);
        }
    }
}
