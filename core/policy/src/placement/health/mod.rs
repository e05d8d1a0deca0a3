//! The health of a replica: a state machine that decides whether it can be sent calls.
//!
//! ```text
//! in -> suspect -> down -> trial -> in
//!  ^------'  ^--------------'
//! ```
//!
//! - **in**: eligible; with a growing share during slow start.
//! - **suspect**: not eligible. Entered on one refused connection, one probe that fails or times
//!   out, or [`FAULTS`] failed calls within [`WINDOW`].
//! - **down**: also, its unanswered calls are cancelled. Always needs two pieces of evidence: a
//!   second refused connection, or a second bad probe `down_after` the first.
//! - **trial**: half open, one call at a time. Ends after [`GOOD`] successes: accepted calls, and
//!   successful probes unless calls failed while probes succeeded.
//!
//! A replica is ejected by a set of [causes](Cause), and returns when all of them are cured.
//! Without probes, time alone opens a trial: after 1 s, and twice as long after each failed trial,
//! up to [`LONGEST`]. A replica that stayed eligible because too many were ejected needs no trial.
//! A replica returns at once if no other is healthy, because no other could take the calls.
//!
//! Probes may take another route than calls (a proxy, a certificate, a path that nobody serves). If
//! no probe ever succeeded and a call is accepted, probes are ignored until one succeeds.
//!
//! A *busy* replica (503 or 429) is healthy. See [`busy`].

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
use tidegate_protocol::duration;

/// The number of failed calls ...
const FAULTS: usize = 5;
/// ... within this time that make a replica suspect ...
const WINDOW: Duration = Duration::from_secs(60);
/// ... unless this many calls were accepted for each of them.
const ACCEPTED: u64 = 4;
/// The number of successes that end a trial.
const GOOD: u32 = 2;
/// The time until the first trial, without probes.
const FIRST: Duration = Duration::from_secs(1);
/// The maximum of that time, and the time with probes.
const LONGEST: Duration = Duration::from_secs(30);
/// Delay before an unhealthy replica is probed again.
const SOON: Duration = Duration::from_millis(50);
/// The minimum share during slow start.
const LEAST_SHARE: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthState {
    In,
    Suspect,
    Down,
    Trial,
}

/// The configured times.
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
    /// Since when the replica starts slowly.
    starting: Option<Instant>,
    /// When the replica last gave a sign of life.
    last_alive: Option<Instant>,
    silent: Option<Evidence>,
    unwell: Option<Evidence>,
    refused: Option<Evidence>,
    /// When evidence against the replica was last seen.
    last_evidence: Instant,
    /// When the replica was last ejected.
    left: Instant,
    /// Failed calls, each with the number of calls accepted before it.
    faults: VecDeque<(Instant, u64)>,
    accepted: u64,
    probes: Probes,
    busy: BusyPeriod,
    /// Failed trials in a row.
    failed: u32,
    /// Successes of the current trial.
    good: u32,
    /// Whether only calls count in the current trial.
    by_calls: bool,
    /// The call of the current trial.
    trial_call: Option<u64>,
    /// How often the replica was ejected.
    ejections: u64,
    /// Whether the replica went down and that was not taken yet.
    went_down: bool,
    /// Whether connections are certainly refused.
    is_refused: bool,
    /// Whether the process ended and that was not taken yet. Its cache is gone.
    ended: bool,
    /// The delay of the next probe, if one is to be scheduled.
    alarmed: Option<Duration>,
    /// Whether the replica stays eligible because too many are ejected.
    kept: bool,
    /// Whether no other replica is in with its whole share.
    alone: bool,
}

impl Health {
    /// Creates the state of a new replica, which is assumed healthy. `starts`: slow start applies
    /// because others run already.
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

    /// Returns how often the replica was ejected. A failed trial continues the ejection before it.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections
    }

    pub(super) fn last_alive(&self) -> Option<Instant> {
        self.last_alive
    }

    /// Returns `true` if evidence ejects the replica.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.state, HealthState::Suspect | HealthState::Down)
    }

    /// Returns `true` if health allows calls.
    pub(super) fn is_eligible(&self) -> bool {
        !self.is_out() || self.kept
    }

    /// Returns `true` if the replica is in with its whole share.
    pub(super) fn is_whole(&self) -> bool {
        self.state == HealthState::In && self.starting.is_none()
    }

    /// Returns `true` if connections are certainly refused: by more than one connection, and not
    /// only by probes that never succeeded.
    pub(super) fn is_refusing(&self) -> bool {
        self.is_refused && self.is_out()
    }

    /// Returns a sort key of ejected replicas, the least bad first: by cause, then by the last sign
    /// of life.
    pub(super) fn badness(&self) -> (Option<Cause>, std::cmp::Reverse<Option<Instant>>) {
        (self.causes.worst(), std::cmp::Reverse(self.last_alive))
    }

    /// Returns `true` if the replica asked for no calls for now, or has its trial call.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.busy.holds(now) || self.state == HealthState::Trial && self.trial_call.is_some()
    }

    /// Returns the share of the weight in force.
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

    /// Sets what depends on the other replicas.
    pub(super) fn update_exemption(&mut self, kept: bool, alone: bool) {
        self.kept = kept;
        self.alone = alone;
    }

    /// Returns `true` if the replica went down since the last call and is not eligible.
    pub(super) fn take_went_down(&mut self) -> bool {
        !self.kept && std::mem::take(&mut self.went_down)
    }

    /// Returns `true` if the process ended since the last call.
    pub(super) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Returns the delay of the next probe if new evidence appeared since the last call.
    pub(super) fn take_alarmed(&mut self) -> Option<Duration> {
        self.alarmed.take()
    }

    /// Lets time pass.
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

    /// Returns when time alone changes something.
    pub(super) fn next_wake(&self, now: Instant, settings: &HealthSettings) -> Option<Instant> {
        // In steps of a twentieth of the whole share.
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
        let evidence = [self.silent, self.unwell].into_iter().flatten();
        evidence.filter_map(|evidence| evidence.takes_down(settings.down_after)).min()
    }

    /// Returns when time alone opens a trial. Probes that count are awaited longer.
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

    /// Handles a sign of life. Returns `true` if anything changed.
    pub(super) fn on_alive(&mut self, now: Instant) -> bool {
        self.last_alive = Some(now);
        // Streams continue although no connection is accepted, or probes fail.
        self.cure(Causes::of([Cause::Silent]))
    }

    /// Handles an answer to something sent at `sent`. Returns `true` if anything changed.
    fn answered(&mut self, now: Instant, sent: Instant) -> bool {
        self.last_alive = Some(now);
        let since = self.refused.is_none_or(|refused| refused.last < sent);
        let cured =
            if since { Causes::of([Cause::Silent, Cause::Refused]) } else { Causes::of([Cause::Silent]) };
        self.cure(cured)
    }

    /// Handles a successful probe.
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
        // A probe may succeed too early while calls fail, as it did before.
        let pause = if self.failed == 0 { Duration::ZERO } else { self.pause() };
        if self.is_out() && now >= self.last_evidence + pause {
            self.recover();
        }
    }

    /// Handles a probe that failed with an answer.
    pub(super) fn on_probe_failed(&mut self, now: Instant, settings: &HealthSettings) {
        self.last_alive = Some(now);
        if self.probes.bad(now) {
            let evidence = Evidence::add(&mut self.unwell, now, now);
            self.on_bad_probe(now, Cause::Unwell, evidence, settings);
            // The replica answers.
            self.cure(Causes::of([Cause::Refused, Cause::Silent]));
        }
    }

    /// Handles a probe, sent at `asked`, that timed out.
    pub(super) fn on_timeout(&mut self, now: Instant, asked: Instant, settings: &HealthSettings) {
        if self.last_alive.is_none_or(|last_alive| last_alive < asked) && self.probes.bad(now) {
            let evidence = Evidence::add(&mut self.silent, asked, now);
            self.on_bad_probe(now, Cause::Silent, evidence, settings);
        }
    }

    /// Handles a probe whose connection was refused.
    pub(super) fn on_refused(&mut self, now: Instant) {
        if self.probes.bad(now) {
            self.on_connect_refused(now, self.probes.tell(), SOON);
        }
    }

    /// Handles evidence from a probe.
    fn on_bad_probe(&mut self, now: Instant, cause: Cause, evidence: Evidence, settings: &HealthSettings) {
        self.suspect(now, cause, SOON);
        if self.state == HealthState::Suspect
            && evidence.takes_down(settings.down_after).is_some_and(|at| now >= at)
        {
            self.go_down();
        }
    }

    /// Handles a refused connection. `counts`: the evidence counts by itself.
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

    /// Handles an accepted attempt that was sent at `sent`. Returns `true` if anything changed.
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

    /// Handles the first token of a call that was sent at `sent`. Returns `true` if anything
    /// changed.
    pub(super) fn first_token(&mut self, now: Instant, sent: Instant) -> bool {
        self.overrule_probes(sent) | self.answered(now, sent)
    }

    /// Ignores probes from here on, if a call succeeded that was sent while probes failed that
    /// never succeeded.
    fn overrule_probes(&mut self, sent: Instant) -> bool {
        if self.is_refused || !self.probes.overruled(sent) {
            return false;
        }
        // The replica was ejected without reason, unless calls failed too.
        if !self.causes.contains(Cause::Failing) && !self.by_calls {
            self.reinstate();
        }
        true
    }

    /// Handles a failed attempt. Returns `false` if the rejection is too old to count.
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

    /// Records that a call was sent.
    pub(super) fn sent(&mut self, call: u64) {
        if self.state == HealthState::Trial {
            self.trial_call = Some(call);
        }
    }

    /// Records that a call has ended.
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
        // Once per ejection: a second cause changes nothing for the calls in flight.
        self.went_down |= self.state != HealthState::Down;
        self.state = HealthState::Down;
    }

    /// Removes causes. Returns `true` if anything changed.
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

    /// Ends the ejection: reinstates the replica or opens a trial.
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

    /// Clears the evidence.
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
