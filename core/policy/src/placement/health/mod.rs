//! The health of a replica: a state machine that decides whether calls may be sent to the replica.
//!
//! ```text
//! in -> suspect -> down -> trial -> in
//!  ^------'  ^--------------'
//! ```
//!
//! - **in**: healthy and eligible. The usable share of its weight grows during slow start.
//! - **suspect**: ejected, that is, not eligible. Entered on one refused connection, one probe that
//!   fails or times out, [`MAX_FAILURES`] failed calls within [`WINDOW`], or as many [rejected
//!   calls](rejections) in a row.
//! - **down**: ejected, and its unanswered calls are cancelled. Entered on a second piece of
//!   evidence: a second refused connection, or a second bad probe, at the earliest `down_after`
//!   after the first one.
//! - **trial**: half open: eligible for one call at a time, or one per [`TRIAL_CALL_INTERVAL`].
//!   Ends after [`TRIAL_SUCCESSES`] successes: accepted calls, and successful probes unless calls
//!   failed while probes succeeded.
//!
//! A replica is ejected for one or more [causes](ejection_causes::Cause). When all of them are
//! cured, a trial begins. Without trusted probes, a trial begins 1 s after the ejection. This time
//! doubles with each failed trial, up to [`MAX_PAUSE`]. Three kinds of replicas return without a
//! trial: suspect replicas that have not failed a trial, replicas that stayed eligible because too
//! many were ejected, and replicas that did not fail each call and return while no other replica is
//! healthy.
//!
//! Probes may take another route than calls (a proxy, a certificate, a path that nobody serves). If
//! no probe ever succeeded and a call is accepted, failed probes are ignored until one succeeds.
//!
//! A *busy* replica (503 or 429) is healthy. See [`busy_period`].

mod busy_period;
mod ejection_causes;
mod probe_trust;
mod rejections;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::ejection_causes::{Cause, CauseEvidence, Causes};
pub(super) use self::rejections::OtherReplica;
use self::{busy_period::BusyPeriod, probe_trust::Probes, rejections::Rejections};
use super::{Fault, PlacedCall, ReplicaState};
use crate::push_bounded;
use tidegate_protocol::{duration, request::Affinity};

/// Number of failed calls within [`WINDOW`] that make a replica suspect, unless at least
/// [`ACCEPTED_PER_FAILURE`] calls were accepted for each of them.
const MAX_FAILURES: usize = 5;
/// Time within which failed calls are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Number of accepted calls per failed call at which failures do not make a replica suspect.
const ACCEPTED_PER_FAILURE: u64 = 4;
/// Number of observations of one cause that take a replica down.
const MIN_EVIDENCE: u32 = 2;
/// Number of successes that end a trial.
const TRIAL_SUCCESSES: u32 = 2;
/// Time that a trial waits for its call in flight before it may send another one. A replica that is
/// slow with one call, for example a long one that is not streamed, may be healthy.
const TRIAL_CALL_INTERVAL: Duration = Duration::from_secs(5);
/// Time from an ejection to the first trial if probes are off or not trusted. It doubles with each
/// failed trial.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time from an ejection to a trial. If probes are trusted, a trial begins this long after
/// the last evidence, unless a successful probe opens one earlier.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Delay before a replica with new evidence against it is probed again.
const PROBE_DELAY: Duration = Duration::from_millis(50);
/// Assumed time from sending a health probe until its answer is known. It is longer than the
/// timeout of a probe.
const PROBE_ANSWER: Duration = Duration::from_secs(1);
/// Share of its weight and slots that a replica has during a trial and at the start of slow start.
const MIN_SHARE: f64 = 0.1;

/// The states of a replica. The [module documentation](self) describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HealthState {
    #[default]
    In,
    Suspect,
    Down,
    Trial,
}

/// The configured settings of the state machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HealthSettings {
    /// Whether health probes are sent.
    pub(super) probes: bool,
    /// Minimum time from the first bad probe to the state `down`.
    pub(super) down_after: Duration,
    /// Length of slow start, or zero to disable slow start.
    pub(super) slow_start: Duration,
}

/// The health of one replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    pub(super) settings: HealthSettings,
    pub(super) state: HealthState,
    causes: Causes,
    /// When slow start began. `None`: the replica is not in slow start.
    starting: Option<Instant>,
    /// When anything was last received from the replica, or `None` if nothing ever was.
    pub(super) last_alive: Option<Instant>,
    /// When evidence against the replica was last found, or `None` if none ever was.
    last_evidence: Option<Instant>,
    /// When the replica was last ejected or failed a trial, or `None` if neither ever happened.
    ejected_at: Option<Instant>,
    /// The last failed calls, at most [`MAX_FAILURES`]: when each failed, and the number of calls
    /// accepted before it.
    faults: VecDeque<(Instant, u64)>,
    /// Number of calls accepted since the replica joined.
    accepted: u64,
    rejections: Rejections,
    /// When the first of [`MAX_FAILURES`] calls failed, or was rejected, between which no call was
    /// accepted. `None` if there was no such row since the replica last accepted a call.
    fails_each_since: Option<Instant>,
    probes: Probes,
    busy: BusyPeriod,
    /// Number of failed trials in a row.
    failed_trials: u32,
    /// Number of successes of the current trial.
    trial_successes: u32,
    /// Whether only accepted calls, and not probes, count as successes of a trial, because calls
    /// failed while probes succeeded.
    by_calls: bool,
    /// The last call sent for the current trial, with the time when it was sent. `None` if it has
    /// ended, or if none was sent.
    trial_call: Option<(u64, Instant)>,
    /// How often the replica was ejected. A failed trial does not count as another ejection.
    pub(super) ejections: u64,
    /// Whether the replica went down since the pool last cancelled the calls of such replicas.
    pub(super) went_down: bool,
    /// Whether connections are certainly refused: at least two were, the last of them for a call,
    /// or for a probe after earlier probes had succeeded.
    is_refused: bool,
    /// Whether the replica's process ended since the pool last checked. Its prefix cache is then
    /// lost.
    pub(super) process_ended: bool,
    /// Delay until a health probe that new evidence against the replica requires, or `None` if no
    /// such probe is required. The pool takes it when it schedules the probe.
    pub(super) probe_in: Option<Duration>,
    /// Whether the replica stays eligible if it is ejected, because too many replicas are ejected.
    /// Set by the pool.
    pub(super) is_exempt: bool,
    /// Whether no other replica is in the state `in` after slow start. Set by the pool.
    pub(super) is_alone: bool,
}

impl Health {
    /// Creates the state of a new replica, which is assumed to be healthy. `starts` is `true` if
    /// the replica begins with slow start.
    pub(super) fn new(now: Instant, settings: HealthSettings, starts: bool) -> Self {
        Self { settings, starting: starts.then_some(now), is_alone: true, ..Self::default() }
    }

    /// Returns the state of a replica that is a member and has this health.
    pub(super) fn replica_state(&self) -> ReplicaState {
        match self.state {
            HealthState::In if self.starting.is_some() => ReplicaState::Starting,
            HealthState::In => ReplicaState::In,
            HealthState::Suspect => ReplicaState::Suspect,
            HealthState::Down => ReplicaState::Down,
            HealthState::Trial => ReplicaState::Trial,
        }
    }

    /// Returns `true` if the replica is ejected: suspect or down.
    pub(super) fn is_ejected(&self) -> bool {
        matches!(self.state, HealthState::Suspect | HealthState::Down)
    }

    /// Returns `true` if health permits calls: the replica is not ejected, or stays eligible
    /// because too many are ejected.
    pub(super) fn is_eligible(&self) -> bool {
        !self.is_ejected() || self.is_exempt
    }

    /// Returns why no calls are sent to the replica now, in words, or `None` if health permits
    /// calls.
    pub(super) fn problem(&self, now: Instant) -> Option<&'static str> {
        if self.busy.until(now).is_some() {
            return Some("calls are rejected as too many (429 or 503)");
        }
        self.causes.worst_text().filter(|_| !self.is_eligible())
    }

    /// Returns `true` if the replica is in the state `in` after slow start.
    pub(super) fn has_full_share(&self) -> bool {
        self.state == HealthState::In && self.starting.is_none()
    }

    /// Returns `true` if the replica is ejected and connections are certainly refused.
    pub(super) fn is_refusing(&self) -> bool {
        self.is_refused && self.is_ejected()
    }

    /// Returns when the replica last accepted a call if the replica is in the state `in`. `None` if
    /// it is in another state or never accepted a call.
    pub(super) fn last_accepted_if_healthy(&self) -> Option<Instant> {
        self.rejections.last_accepted().filter(|_| self.state == HealthState::In)
    }

    /// Returns `true` if the replica has failed [`MAX_FAILURES`] calls in a row and accepted none
    /// since, and another replica accepted a call since then or at most [`WINDOW`] before.
    /// `accepted` is when another replica last accepted a call, or `None` if none ever did.
    pub(super) fn fails_each_call(&self, accepted: Option<Instant>) -> bool {
        self.fails_each_since.zip(accepted).is_some_and(|(since, accepted)| accepted + WINDOW >= since)
    }

    /// Returns a sort key for ejected replicas, the least bad first: by the severity of the worst
    /// cause, then by the time when anything was last received, the latest first.
    pub(super) fn badness(&self) -> (Option<usize>, Reverse<Option<Instant>>) {
        (self.causes.worst(), Reverse(self.last_alive))
    }

    /// Returns `true` if no further call is to be sent now: the replica is in a busy period, or its
    /// trial waits for the call in flight.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.busy.until(now).is_some() || self.trial_waits_until(now).is_some()
    }

    /// Returns when the trial may send another call although one is in flight. Returns `None` if
    /// there is no trial, or if it may send a call now.
    fn trial_waits_until(&self, now: Instant) -> Option<Instant> {
        let (_, sent) = self.trial_call.filter(|_| self.state == HealthState::Trial)?;
        Some(sent + TRIAL_CALL_INTERVAL).filter(|until| now < *until)
    }

    /// Returns the usable share of the replica's weight and slots, from [`MIN_SHARE`] to 1.
    pub(super) fn share(&self, now: Instant) -> f64 {
        let slow_start = self.settings.slow_start;
        match (self.state, self.starting) {
            (HealthState::In, Some(since)) if !self.is_alone && !slow_start.is_zero() => {
                let part = now.saturating_duration_since(since).as_secs_f64() / slow_start.as_secs_f64();
                part.clamp(MIN_SHARE, 1.0)
            }
            (HealthState::Trial, _) => MIN_SHARE,
            _ => 1.0,
        }
    }

    /// Applies the changes that time alone causes: slow start ends, a suspect replica goes down, or
    /// an ejected replica begins a trial.
    pub(super) fn tick(&mut self, now: Instant) {
        self.starting.take_if(|since| now >= duration::after(*since, self.settings.slow_start));
        if self.down_at().is_some_and(|at| now >= at) {
            self.go_down();
        }
        if self.reopens_at().is_some_and(|at| now >= at) {
            if self.is_exempt { self.reinstate() } else { self.open_trial() }
        }
    }

    /// Returns when time alone changes the state or the share, or `None` for never. During slow
    /// start, the share changes in steps of a twentieth.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let slow_start = self.settings.slow_start;
        let starting = self.starting.filter(|_| !self.is_ejected());
        let next_share = starting
            .map(|since| duration::after(since, slow_start).min(duration::after(now, slow_start / 20)));
        let pauses = [self.busy.until(now), self.trial_waits_until(now)];
        [next_share, self.down_at(), self.reopens_at()].into_iter().chain(pauses).flatten().min()
    }

    /// Returns when a suspect replica goes down because of bad probes. Returns `None` if the
    /// replica is not suspect, or if one more bad probe is needed.
    fn down_at(&self) -> Option<Instant> {
        let suspect = self.state == HealthState::Suspect;
        let found = [Cause::Silent, Cause::ProbesFail].map(|cause| self.causes.get(cause));
        let enough = found.into_iter().flatten().filter(|found| suspect && found.count >= MIN_EVIDENCE);
        enough.map(|evidence| duration::after(evidence.since, self.settings.down_after)).min()
    }

    /// Returns when time alone opens a trial, or `None` if the replica is not ejected. If probes
    /// are trusted, the time is later, because a successful probe is expected to open the trial.
    fn reopens_at(&self) -> Option<Instant> {
        if !self.is_ejected() {
            None
        } else if self.settings.probes && self.probes == Probes::Trusted {
            Some(self.last_evidence? + MAX_PAUSE)
        } else {
            Some(self.ejected_at? + self.pause())
        }
    }

    /// Returns when the replica is expected to accept calls again, if it is healthy by then.
    /// `probe` is when the next probe is sent, or `None` if probes are off. Returns `None` if the
    /// replica accepts calls now, or if the end of its trial call decides.
    pub(super) fn returns_at(&self, now: Instant, probe: Option<Instant>) -> Option<Instant> {
        let busy = self.busy.until(now);
        if self.is_eligible() {
            return busy;
        }
        let by_probe =
            probe.map(|at| self.probes_count_from().map_or(at, |from| at.max(from)) + PROBE_ANSWER);
        let reopens = [by_probe, self.reopens_at()].into_iter().flatten().min()?;
        Some(busy.map_or(reopens, |busy| busy.max(reopens)))
    }

    /// Returns the time before which a successful probe does not end the ejection, or `None` if
    /// there is no such time. There is one if calls failed in the last trial although probes
    /// succeeded.
    fn probes_count_from(&self) -> Option<Instant> {
        let calls_failed = self.failed_trials > 0 && self.causes.get(Cause::CallsFail).is_some();
        self.last_evidence.filter(|_| calls_failed).map(|last| last + self.pause())
    }

    /// Returns the time from an ejection to a trial, which doubles with each failed trial.
    fn pause(&self) -> Duration {
        (FIRST_PAUSE * (1 << self.failed_trials.min(5))).min(MAX_PAUSE)
    }

    /// Updates the health after a byte was received. Returns `true` if that removed a cause of
    /// ejection.
    pub(super) fn on_alive(&mut self, now: Instant) -> bool {
        self.last_alive = Some(now);
        // Streams continue although no connection is accepted, or probes fail.
        self.cure(&[Cause::Silent])
    }

    /// Updates the health after an answer to a call that was sent at `sent`. Returns `true` if that
    /// removed a cause of ejection.
    fn on_answer(&mut self, now: Instant, sent: Instant) -> bool {
        self.last_alive = Some(now);
        let is_newer = self.causes.get(Cause::Refused).is_none_or(|refused| refused.last < sent);
        self.cure(if is_newer { &[Cause::Silent, Cause::Refused] } else { &[Cause::Silent] })
    }

    /// Records a successful probe: counts it as a success of the current trial, or removes the
    /// causes that it cures and may end the ejection.
    pub(super) fn on_probe_ok(&mut self, now: Instant) {
        self.last_alive = Some(now);
        self.probes = Probes::Trusted;
        if self.state == HealthState::Trial {
            if !self.by_calls {
                self.on_trial_success(now);
            }
            return;
        }
        self.cure(&[Cause::Refused, Cause::ProbesFail, Cause::Silent]);
        if self.is_ejected() && self.probes_count_from().is_none_or(|from| now >= from) {
            self.recover();
        }
    }

    /// Updates the health after a probe that was answered with an error. Ejects the replica, unless
    /// failed probes are ignored.
    pub(super) fn on_probe_failed(&mut self, now: Instant) {
        self.last_alive = Some(now);
        if self.probes.on_failed(now) {
            self.suspect(now, Cause::ProbesFail, now, PROBE_DELAY);
            // The replica answers.
            self.cure(&[Cause::Refused, Cause::Silent]);
        }
    }

    /// Records that a probe sent at `asked` timed out. Ejects the replica, unless anything was
    /// received from it since, or failed probes are ignored.
    pub(super) fn on_probe_timeout(&mut self, now: Instant, asked: Instant) {
        if self.last_alive.is_none_or(|last_alive| last_alive < asked) && self.probes.on_failed(now) {
            self.suspect(now, Cause::Silent, asked, PROBE_DELAY);
        }
    }

    /// Records a probe whose connection was refused. Ejects the replica, unless failed probes are
    /// ignored.
    pub(super) fn on_probe_refused(&mut self, now: Instant) {
        if self.probes.on_failed(now) {
            self.on_connect_refused(now, self.probes == Probes::Trusted, PROBE_DELAY);
        }
    }

    /// Records a refused connection. If `is_certain`, a second one takes the replica down. `again`
    /// is the delay until the next probe.
    fn on_connect_refused(&mut self, now: Instant, is_certain: bool, again: Duration) {
        let evidence = self.suspect(now, Cause::Refused, now, again);
        if is_certain && evidence.count >= MIN_EVIDENCE {
            self.process_ended |= !self.is_refused;
            self.is_refused = true;
            self.busy = BusyPeriod::default();
            self.go_down();
        }
    }

    /// Updates the health after a call was accepted. Returns `true` if the state may have changed.
    pub(super) fn on_accepted(&mut self, now: Instant, call: &PlacedCall) -> bool {
        self.accepted += 1;
        self.rejections.on_accepted(now);
        self.fails_each_since = None;
        self.busy.consecutive = 0;
        let on_trial = self.state == HealthState::Trial;
        if on_trial {
            self.on_ended(call.number);
            self.on_trial_success(now);
        }
        self.on_first_token(now, call) | on_trial
    }

    /// Updates the health after the first token of a call. Returns `true` if the state may have
    /// changed.
    pub(super) fn on_first_token(&mut self, now: Instant, call: &PlacedCall) -> bool {
        let overruled = !self.is_refused && self.probes.overrule(call.sent);
        // The replica was ejected without reason, unless calls failed too.
        if overruled && self.causes.get(Cause::CallsFail).is_none() && !self.by_calls {
            self.reinstate();
        }
        self.on_answer(now, call.sent) | overruled
    }

    /// Updates the health after a failed attempt. Returns `false` if the attempt was rejected as
    /// busy and the rejection is too old to count.
    pub(super) fn on_failed(&mut self, now: Instant, call: &PlacedCall, fault: Fault, rng: &mut Rng) -> bool {
        self.on_ended(call.number);
        match fault {
            Fault::Full(asked) | Fault::Limited(asked) => {
                self.on_answer(now, call.sent);
                return self.busy.extend(now, call.sent, asked.unwrap_or_default(), rng);
            }
            Fault::ConnectRefused => self.on_connect_refused(now, true, Duration::ZERO),
            Fault::Unreached | Fault::Broke => self.on_call_failed(now),
            Fault::NoModel => {
                self.on_accepted(now, call);
            }
            // The replica answers. See [`Health::on_rejected`].
            Fault::Rejected | Fault::Unauthenticated => {
                self.on_answer(now, call.sent);
            }
            Fault::Unanswered => {}
        }
        true
    }

    /// Counts a call that the replica rejected or left unanswered, after [`Health::on_failed`].
    /// Makes the replica suspect if the [rejected calls](rejections) show that it is the cause.
    ///
    /// `affinity` identifies the conversation of the call.
    pub(super) fn on_rejected(&mut self, now: Instant, affinity: &Affinity, others: &[OtherReplica]) {
        if !self.rejections.record_conversation(affinity) {
            return;
        }
        let cause_since = self.rejections.add(now, others);
        let fails_trial = self.state == HealthState::Trial && self.rejections.was_cause();
        if !self.is_ejected() && (cause_since.is_some() || fails_trial) {
            self.fails_each_since = self.fails_each_since.or(cause_since);
            self.rejections.on_found();
            self.suspect(now, Cause::CallsFail, now, Duration::ZERO);
        }
    }

    /// Records a failed call. A failed trial, or too many failures in a short time, make the
    /// replica suspect.
    fn on_call_failed(&mut self, now: Instant) {
        push_bounded(&mut self.faults, MAX_FAILURES, (now, self.accepted));
        let oldest = self.faults.front().filter(|_| self.faults.len() == MAX_FAILURES).copied();
        let oldest = oldest.filter(|(first, _)| now <= *first + WINDOW);
        let accepted = oldest.map(|(_, before)| self.accepted - before);
        let too_many = accepted.is_some_and(|accepted| accepted < ACCEPTED_PER_FAILURE * MAX_FAILURES as u64);
        if let (Some((first, _)), Some(0)) = (oldest, accepted) {
            self.fails_each_since.get_or_insert(first);
        }
        if self.state == HealthState::Trial || self.state == HealthState::In && too_many {
            self.faults.clear();
            self.suspect(now, Cause::CallsFail, now, Duration::ZERO);
        } else {
            self.last_evidence = Some(now);
        }
    }

    /// Records that a call was sent. During a trial, it becomes the trial's call.
    pub(super) fn on_sent(&mut self, now: Instant, call: u64) {
        if self.state == HealthState::Trial {
            self.trial_call = Some((call, now));
        }
    }

    /// Records that a call has ended, so that a trial may send the next one.
    pub(super) fn on_ended(&mut self, call: u64) {
        self.trial_call.take_if(|(trial_call, _)| *trial_call == call);
    }

    /// Adds evidence of a cause, and ejects the replica if it is not ejected yet. Returns all
    /// evidence of the cause.
    ///
    /// `since` is when the observation began, for example when the probe was sent. `again` is the
    /// delay until the next probe if the cause is new.
    fn suspect(&mut self, now: Instant, cause: Cause, since: Instant, again: Duration) -> CauseEvidence {
        self.last_evidence = Some(now);
        if self.causes.get(cause).is_none() {
            self.probe_in = Some(self.probe_in.map_or(again, |delay| delay.min(again)));
        }
        if !self.is_ejected() {
            match self.state {
                HealthState::Trial => self.failed_trials += 1,
                _ => self.ejections += 1,
            }
            self.ejected_at = Some(now);
            self.trial_call = None;
            self.state = HealthState::Suspect;
        }
        self.causes.add(cause, since, now)
    }

    /// Enters the state `down`. If the replica was not down before, its unanswered calls are to be
    /// cancelled.
    fn go_down(&mut self) {
        self.went_down |= self.state != HealthState::Down;
        self.state = HealthState::Down;
    }

    /// Removes the causes in `cured`. If no cause is left, ends the ejection. Returns `true` if a
    /// cause was removed.
    fn cure(&mut self, cured: &[Cause]) -> bool {
        self.is_refused &= !cured.contains(&Cause::Refused);
        let removed = cured.iter().filter(|cause| self.causes.remove(**cause)).count();
        if removed > 0 && self.is_ejected() && self.causes.worst().is_none() {
            let is_brief = self.state == HealthState::Suspect && self.failed_trials == 0;
            if is_brief { self.reinstate() } else { self.recover() }
        }
        removed > 0
    }

    /// Ends the ejection: with a trial, or without one if the replica stayed eligible, or if no
    /// other replica could take the calls and it has not failed each of them.
    fn recover(&mut self) {
        let is_needed = self.is_alone && self.fails_each_since.is_none();
        if self.is_exempt || is_needed { self.reinstate() } else { self.open_trial() }
    }

    /// Ends the ejection or the trial: the replica returns to the state `in`.
    fn reinstate(&mut self) {
        self.enter(HealthState::In);
        self.failed_trials = 0;
        self.by_calls = false;
    }

    /// Ends the ejection with a trial: one call at a time may be sent to the replica.
    fn open_trial(&mut self) {
        self.by_calls |= self.causes.get(Cause::CallsFail).is_some();
        self.enter(HealthState::Trial);
        self.trial_successes = 0;
    }

    /// Enters a state, and clears the evidence against the replica and its trial call.
    fn enter(&mut self, state: HealthState) {
        self.state = state;
        self.causes = Causes::default();
        self.went_down = false;
        self.trial_call = None;
    }

    /// Counts a success of the current trial. The last required one ends the trial and, if
    /// other replicas are healthy, begins slow start.
    fn on_trial_success(&mut self, now: Instant) {
        self.trial_successes += 1;
        if self.trial_successes >= TRIAL_SUCCESSES {
            self.reinstate();
            self.faults.clear();
            self.is_refused = false;
            self.starting = (!self.is_alone).then_some(now);
        }
    }
}
