//! Cool-down of a target: decides when attempts are admitted again after a failure.
//!
//! A cool-down applies to the whole target, not to one call, because a provider's `Retry-After`
//! applies to every call with the same credential and model. Targets that several of these use have
//! a [`CooldownTable`] in addition. If only the rejected call waited, as in most clients, all other
//! calls would be sent and rejected meanwhile.
//!
//! # Algorithm
//!
//! A target in the state Open admits all attempts, Cooling none, Probing single ones, and Ramping a
//! growing number per second.
//!
//! ```text
//!            Retry-After, or an outage                 time is up
//!   Open  ---------------------------->  Cooling  ---------------->  Probing  --+ the last probe hangs:
//!    ^                                      ^                          |  | ^   | another one each interval
//!    |                                      |   the last probe failed  |  | +---+
//!    |                                      +--------------------------+  |
//!    |  slots bind, or 10 s                    a probe succeeded, or none |
//!    +-------------------------  Ramping  <-------------------------------+
//!    |                                         has failed for its patience
//!    +--------------------------------------------------------------------+
//!        a probe succeeded, and only calls that fail anywhere had failed
//! ```
//!
//! - **Retry-After** is a lower bound: no attempt is admitted before it, and jitter is added to it.
//!   During an outage, zero does not shorten the intervals between probes, nor does any other
//!   failure than a 429 that asks for less than the shortest interval.
//! - **Outage**: three *witnesses* of failure in a row, without a success in between. A witness is
//!   a distinct call that failed, because one invalid call is no outage. At a target that has
//!   worked before, each attempt that was not processed (no connection, 503 or 529) is a witness as
//!   well. During an outage, the target cools down for short, growing intervals. A target that has
//!   never worked (for example because of a mistyped URL) does not cool down, so that its callers
//!   get the error immediately, unless a deadline is set by the caller or the configuration.
//! - **Probe**: a single attempt after a cool-down. If possible, it is of a call that has not
//!   failed here before, because a failure may be the call's own fault. A call that fails again is
//!   no new witness. If it was the probe, a call that has not failed here may follow after the
//!   shortest interval. If that call is accepted, and every failure so far may have been the fault
//!   of its call, there was no outage, and all attempts are admitted immediately.
//! - **Hanging probe**: while a probe has neither succeeded nor failed, another one is admitted per
//!   interval. The target counts as accepting after no probe has failed for several times the usual
//!   failure time (its *patience*).
//! - **Ramp**: attempts are first admitted at the rate of successes in the ten seconds before the
//!   cool-down. The rate doubles every two seconds, so calls that were queued for a minute are not
//!   sent all at once. If the rate is unknown, the ramp starts at a share of the limit. A ramp with
//!   a known rate admits each attempt at most one second later than a ramp with an unknown rate.
//!   The ramp ends after ten seconds, or when an attempt takes the last slot (*slots bind*).
//! - **Accepted slots**: a 429 without Retry-After in the ramp after an outage shows that the
//!   upstream takes fewer calls than there are slots. An outage that consisted of 429s shows
//!   nothing. Only as many slots are then used as were accepted. Each round of accepted calls adds
//!   one, and each further 429 takes the excess back. All slots are used again when the calls have
//!   left some of these free for ten seconds.
//! - **Epoch**: each cool-down and each successful probe starts a new epoch. Only attempts of the
//!   current epoch change the state, so late failures of earlier attempts neither prolong nor start
//!   a cool-down. A late Retry-After prolongs a running cool-down. After the cool-down, the
//!   Retry-After is counted from when its attempt was sent. If it has then passed already, it
//!   delays only the call of that attempt.
//!
//! # Rationale
//!
//! See `docs/design/cool-down.md`.

mod accepted_slots;
mod cooldown_table;
mod failure_from_outcome;
mod recovery_ramp;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use accepted_slots::AcceptedSlots;
pub use cooldown_table::CooldownTable;
use recovery_ramp::{Ramp, Throughput};

use crate::{labels::labelled, push_bounded, retry::RetryPath};
use tidegate_protocol::duration;

/// A target counts as accepting probes if none has failed for this many times the usual failure
/// time. Rejections arrive much earlier than complete responses.
const PATIENCE_FACTOR: u32 = 4;
/// Minimum time without a failed probe after which the target counts as accepting. It allows for
/// variations of the time in which a probe is rejected.
const MIN_PATIENCE: Duration = Duration::from_millis(200);
/// Assumed time from sending an attempt to its failure, until an attempt has failed.
const MIN_FAILURE_TIME: Duration = Duration::from_millis(250);
/// Maximum of the measured time from sending an attempt to its failure. Most clients do not wait
/// this long for a response head.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(15 * 60);
/// Maximum number of probes in flight: the interval between them is the failure time divided by
/// this number.
const MAX_HANGING_PROBES: u32 = 8;
/// Maximum duration of a ramp.
const MAX_RAMP: Duration = Duration::from_secs(10);
/// Maximum `Retry-After` that applies to the target. A longer one applies to the rejected call
/// only, because one absurd header must not block the target until the process restarts.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);
/// Maximum time by which a timer is assumed to fire too late.
const TIMER_SLACK: Duration = Duration::from_millis(50);
/// Number of consecutive witnesses of failure that make an outage. See the [module
/// documentation](self).
const OUTAGE_WITNESSES: usize = 3;
/// Shortest interval between the probes of an outage.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Longest interval between the probes of an outage.
///
/// It limits the attempts during an outage (about 40 per minute, or 65 if calls that have failed
/// here alternate with others) and the delay until the end of the outage is detected.
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(1600);
/// Fraction of a probe interval that is random, so that several processes do not probe at the same
/// time.
const JITTER_SHARE: f64 = 0.1;
/// Attempts per second at the start of a ramp without a known rate, as a fraction of the number of
/// slots.
const COLD_START_SHARE: f64 = 0.25;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    #[default]
    Open,
    Cooling {
        until: Instant,
    },
    /// `in_flight` is `None` before the first probe, and after the last one was cancelled.
    Probing {
        in_flight: Option<Probes>,
    },
    Ramping {
        since: Instant,
        ramp: Ramp,
        admitted: u32,
    },
}

/// The times of the probes that are in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probes {
    /// When the most recent probe was sent.
    last_sent: Instant,
    /// When the first of the probes was sent, or when a probe last failed if that is later.
    unfailed_since: Instant,
}

/// An admitted attempt, as passed to the methods of [`Cooldown`] when the attempt ends.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The epoch in which the attempt was admitted.
    epoch: u64,
    /// When the attempt was admitted.
    pub sent: Instant,
    /// Whether an earlier attempt of the same call failed in a way that the request itself may have
    /// caused.
    pub has_failed: bool,
    /// The number of attempts in flight when the attempt was admitted, including itself.
    in_flight: usize,
    /// Whether the attempt was admitted in the ramp after an outage in which the upstream did not
    /// only answer 429.
    follows_outage: bool,
}

labelled! {
    /// The state of the cool-down of a target, for snapshots and metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CooldownState {
        /// Attempts are admitted without a limit by the cool-down.
        Open = "open",
        /// No attempt is admitted before the end of the cool-down.
        Cooling = "cooling",
        /// Single attempts are admitted to find out whether the target works again.
        Probing = "probing",
        /// Attempts are admitted at a rate that doubles every two seconds.
        Ramping = "ramping",
    }
}

/// How an attempt failed, as far as the cool-down depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The upstream did not process the request: no connection was established, or the request was
    /// rejected because the upstream is overloaded (503, 529).
    Unread {
        /// Whether calls are queued during an outage even if the target has never worked, because
        /// the upstream reported overload, or because the caller or the configuration set a
        /// deadline.
        worth_waiting: bool,
    },
    /// The upstream rejected the request because calls arrive too fast (429).
    Limited,
    /// The request may have been processed, or was rejected for another reason.
    Other,
}

/// The cool-down of one target. Each method takes the current time as `now`.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate_policy::cooldown::{Cooldown, Failure, CooldownState};
///
/// let now = Instant::now();
/// let mut target = Cooldown::default();
/// let attempt = target.admit(now, false, 1, false);
/// let retry_after = Some(Duration::from_secs(3));
/// target.on_failure(now, 1, Failure::Limited, attempt, retry_after, 0.0);
/// assert_eq!(target.state_at(now), CooldownState::Cooling);
/// assert_eq!(target.ready(now, 8, false), Err(now + Duration::from_secs(3)));
/// ```
#[derive(Debug, Default)]
pub struct Cooldown {
    phase: Phase,
    epoch: u64,
    /// Successes per second before the last cool-down, at which the next ramp starts. `None` if
    /// unknown.
    steady_rate: Option<f64>,
    successes: Throughput,
    has_worked: bool,
    /// Whether calls are queued during an outage even if the target has never worked.
    is_worth_waiting: bool,
    evidence: OutageEvidence,
    /// Time before which a call that has failed here is not admitted as a probe. `None` if no probe
    /// has failed.
    retries_from: Option<Instant>,
    /// Total length of the closed periods that have ended. A target is closed while it cools down
    /// or probes, except while no slot is free for the next probe.
    closed_for: Duration,
    /// Start of the current closed period. `None` if the target is not closed.
    closed_since: Option<Instant>,
    /// Whether the last ramp followed an outage in which the upstream did not only answer 429.
    ramp_follows_outage: bool,
    /// The slots while the upstream takes fewer calls than are configured. `None` if it is not
    /// known to do so.
    accepted: Option<AcceptedSlots>,
}

/// The evidence for an outage: the failures since the last success.
#[derive(Debug, Default)]
struct OutageEvidence {
    /// The calls that are witnesses of failure, the last one at the end. At most
    /// [`OUTAGE_WITNESSES`].
    failing_calls: VecDeque<u64>,
    is_down: bool,
    /// Whether the target failed in another way than by a 429.
    is_unavailable: bool,
    /// Whether the target itself caused a failure: it was not reachable, asked callers to wait, or
    /// failed the probe of a call that had not failed here. Otherwise, the requests may have caused
    /// all failures.
    is_confirmed: bool,
    /// Number of probe intervals since the outage began.
    intervals: u32,
    /// Usual time from sending an attempt to its failure. `None` if no attempt has failed since the
    /// last success.
    failure_time: Option<Duration>,
}

impl OutageEvidence {
    /// Returns `true` if the target is in an outage in which it did not only answer 429.
    fn is_outage(&self) -> bool {
        self.is_down && self.is_unavailable
    }
}

impl Cooldown {
    /// Returns the state at `now`.
    pub fn state_at(&self, now: Instant) -> CooldownState {
        match self.phase {
            Phase::Cooling { until } if until > now => CooldownState::Cooling,
            Phase::Cooling { .. } | Phase::Probing { .. } => CooldownState::Probing,
            Phase::Ramping { since, .. } if since + MAX_RAMP > now => CooldownState::Ramping,
            Phase::Ramping { .. } | Phase::Open => CooldownState::Open,
        }
    }

    /// Returns `true` if the cool-down does not limit attempts, as of the last call of a method
    /// that changes the state.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Returns `true` if the target is in an outage.
    pub fn is_down(&self) -> bool {
        self.evidence.is_down
    }

    /// Returns `true` if the target is in an outage in which it did not only answer 429.
    pub(crate) fn is_outage(&self) -> bool {
        self.evidence.is_outage()
    }

    /// Returns the time before which no attempt is admitted. `None` if the target does not cool
    /// down.
    pub fn until(&self) -> Option<Instant> {
        if let Phase::Cooling { until } = self.phase { Some(until) } else { None }
    }

    /// Returns the total time since its creation that the target was closed (see
    /// [`Cooldown::is_closed`]). The wait budgets of queued calls are paused during this time,
    /// unless the target has a fallback.
    pub fn closed(&self, now: Instant) -> Duration {
        self.closed_for
            + self.closed_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns `true` if the target is closed, that is, cooling down or probing. It is not while
    /// the next probe lacks a slot: then calls wait for other calls, not for the target.
    pub fn is_closed(&self) -> bool {
        self.closed_since.is_some()
    }

    /// Sets whether a slot is free, so that a probe can be sent.
    pub(crate) fn set_has_slot(&mut self, now: Instant, has_slot: bool) {
        match self.phase {
            Phase::Probing { in_flight: None } if !has_slot => self.end_closed_period(now),
            Phase::Cooling { .. } | Phase::Probing { .. } => drop(self.closed_since.get_or_insert(now)),
            Phase::Ramping { .. } | Phase::Open => {}
        }
    }

    /// Returns `true` if the next admitted attempt is a probe, as of the last call of
    /// [`Cooldown::ready`].
    pub(crate) fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. })
    }

    /// Returns `Ok` if an attempt may be admitted at `now`.
    ///
    /// `limit` is the number of slots of the target. `has_failed` is as in [`Attempt::has_failed`].
    ///
    /// # Errors
    ///
    /// If no attempt may be admitted, returns the time at which the next one may be.
    pub fn ready(&mut self, now: Instant, limit: usize, has_failed: bool) -> Result<(), Instant> {
        if let Phase::Open = self.phase {
            return Ok(());
        }
        self.advance(now, limit);
        let due = match self.phase {
            Phase::Open => now,
            Phase::Cooling { until } => until,
            Phase::Probing { in_flight } => {
                let next = in_flight.map_or(now, |in_flight| {
                    in_flight.last_sent + (self.failure_time() / MAX_HANGING_PROBES).max(MAX_PROBE_INTERVAL)
                });
                let next = next.max(self.retries_from.filter(|_| has_failed).unwrap_or(now));
                in_flight.map_or(next, |in_flight| next.min(in_flight.unfailed_since + self.patience()))
            }
            Phase::Ramping { since, ramp, admitted } => duration::after(since, ramp.due(f64::from(admitted))),
        };
        if due <= now { Ok(()) } else { Err(due) }
    }

    /// Returns the number of slots of a target with `limit` slots: fewer while the upstream rejects
    /// calls after a cool-down, because it takes fewer at the same time.
    pub fn slots(&self, limit: usize) -> usize {
        self.accepted.map_or(limit, |accepted| limit.min(accepted.slots()))
    }

    /// Records that one of `in_flight` attempts ends. [`Cooldown::slots`] remain reduced while they
    /// are used.
    pub fn on_ended(&mut self, now: Instant, in_flight: usize) {
        if let Some(accepted) = &mut self.accepted {
            accepted.on_ended(now, in_flight);
        }
    }

    /// Admits an attempt at `now` and returns its record. `in_flight` attempts are then in flight.
    /// `slots_bind` is `true` if the attempt took the last slot. Then a ramp ends, because the
    /// slots limit the rate.
    pub fn admit(&mut self, now: Instant, has_failed: bool, in_flight: usize, slots_bind: bool) -> Attempt {
        let follows_outage = self.ramp_follows_outage && matches!(self.phase, Phase::Ramping { .. });
        if self.accepted.as_mut().is_some_and(|accepted| !accepted.on_sent(now, in_flight, MAX_RAMP)) {
            self.accepted = None;
        }
        match &mut self.phase {
            Phase::Open | Phase::Cooling { .. } => {}
            Phase::Probing { in_flight } => {
                let unfailed_since = in_flight.map_or(now, |in_flight| in_flight.unfailed_since);
                *in_flight = Some(Probes { last_sent: now, unfailed_since });
            }
            Phase::Ramping { .. } if slots_bind => self.phase = Phase::Open,
            Phase::Ramping { since, ramp, admitted } => {
                // Unused capacity is not saved, except for what a late timer may have missed.
                let elapsed = now.saturating_duration_since(*since).saturating_sub(TIMER_SLACK);
                *admitted = admitted.saturating_add(1).max(ramp.earned(elapsed) as u32);
            }
        }
        Attempt { epoch: self.epoch, sent: now, has_failed, in_flight, follows_outage }
    }

    /// Records that the target accepted an attempt, which ends an outage or a probe. `limit` is the
    /// number of slots of the target. Ignored for attempts of an earlier epoch.
    pub fn on_success(&mut self, now: Instant, attempt: Attempt, limit: usize) {
        if attempt.epoch != self.epoch {
            return;
        }
        self.has_worked = true;
        let evidence = std::mem::take(&mut self.evidence);
        if self.is_probing() {
            // The remaining hanging probes say nothing about the target from now on.
            self.epoch += 1;
            if evidence.is_confirmed {
                self.start_ramp(now, limit, evidence.is_outage());
            } else {
                self.reopen(now, Phase::Open);
            }
        }
        self.successes.count(now);
        if let Some(accepted) = &mut self.accepted {
            accepted.on_accepted(attempt.in_flight);
        }
    }

    /// Records that an attempt was cancelled. If it was the most recent probe, another probe may be
    /// admitted immediately.
    pub fn on_cancelled(&mut self, attempt: Attempt) {
        if attempt.epoch == self.epoch
            && let Phase::Probing { in_flight } = &mut self.phase
        {
            *in_flight = in_flight.filter(|in_flight| in_flight.last_sent != attempt.sent);
        }
    }

    /// Records the failure of an attempt, which may start or prolong a cool-down. Returns how the
    /// call continues if it is retried.
    ///
    /// `call` identifies the call, `failure` is the result of [`Failure::from_outcome`], and
    /// `delay` is the `Retry-After` of the provider. A `delay` of more than a day is ignored.
    /// `jitter` is uniform in `[0, 1)`.
    pub fn on_failure(
        &mut self,
        now: Instant,
        call: u64,
        failure: Failure,
        attempt: Attempt,
        delay: Option<Duration>,
        jitter: f64,
    ) -> RetryPath {
        let is_current = attempt.epoch == self.epoch;
        let delay = delay.filter(|delay| *delay <= MAX_DELAY);
        let is_cooling = self.until().is_some_and(|until| until > now);
        if let Some(delay) = delay.filter(|_| !is_current && !is_cooling) {
            // Later attempts were admitted since, so the target cools down only for the rest of the
            // delay. The call itself waits for the whole delay.
            let ends = attempt.sent + delay;
            if ends > now {
                self.evidence.is_confirmed = true;
                self.cool(now, ends + retry_after_jitter(delay, jitter), false);
            }
            return RetryPath::Backoff;
        }
        let knows_slots = attempt.follows_outage || self.accepted.is_some();
        if is_current && failure == Failure::Limited && delay.is_none() && knows_slots {
            self.accepted = Some(AcceptedSlots::on_rejected(self.accepted, now, attempt.in_flight));
        }
        let is_probe = is_current && self.is_probing();
        // The request itself may have caused this failure and an earlier one.
        let repeats = attempt.has_failed && failure == Failure::Other;
        if is_current {
            let took = now.saturating_duration_since(attempt.sent).min(MAX_FAILURE_TIME);
            self.evidence.failure_time = Some(if is_probe { took } else { took.max(self.failure_time()) });
            self.add_witness(call, failure, repeats);
        }
        if let Some(delay) = delay {
            self.evidence.is_confirmed = true;
            // While the target is down, a zero or very short `Retry-After` does not shorten the
            // probe interval. A 429 may state when a rate permits the next call.
            let says_nothing = delay.is_zero() || failure != Failure::Limited && delay < MIN_PROBE_INTERVAL;
            let is_paced = is_current && self.is_down() && says_nothing;
            let delay = if is_paced { delay.max(self.next_interval(jitter)) } else { delay };
            self.cool(now, now + delay + retry_after_jitter(delay, jitter), is_current);
        } else if is_probe {
            // A failed probe shows that the target is not back, without further witnesses. A ramp
            // needs them: otherwise an upstream that fails one call in twenty would never reach its
            // end.
            self.probe_failed(now, attempt.sent, repeats, jitter);
        } else if is_current && self.is_down() && !repeats {
            let interval = self.next_interval(jitter);
            self.cool(now, now + interval, true);
        }
        match self.phase {
            Phase::Cooling { .. } | Phase::Probing { .. } if self.is_down() => RetryPath::AfterOutage,
            Phase::Cooling { .. } => RetryPath::AfterCoolDown,
            Phase::Probing { .. } if is_probe => RetryPath::AfterCoolDown,
            _ => RetryPath::Backoff,
        }
    }

    /// Records the failure of a probe that was sent at `sent`. Cools the target down for one
    /// interval, unless a later probe is in flight. `repeats` is as in [`Cooldown::add_witness`].
    fn probe_failed(&mut self, now: Instant, sent: Instant, repeats: bool, jitter: f64) {
        self.evidence.is_confirmed |= !repeats;
        if let Phase::Probing { in_flight: Some(in_flight) } = &mut self.phase {
            in_flight.unfailed_since = now;
            if in_flight.last_sent != sent {
                return;
            }
        }
        // The interval counts from one probe's sending to the next one's, however long the first
        // took to fail.
        let took = now.saturating_duration_since(sent);
        let after = |interval: Duration| now + interval.saturating_sub(took).max(MIN_PROBE_INTERVAL / 2);
        let next = after(self.next_interval(jitter));
        self.retries_from = Some(next);
        self.cool(now, if repeats { next.min(after(MIN_PROBE_INTERVAL)) } else { next }, true);
    }

    /// Returns the current probe interval with jitter. The next call returns a longer one, up to
    /// [`MAX_PROBE_INTERVAL`].
    fn next_interval(&mut self, jitter: f64) -> Duration {
        let interval = (MIN_PROBE_INTERVAL * (1 << self.evidence.intervals.min(10))).min(MAX_PROBE_INTERVAL);
        self.evidence.intervals += 1;
        interval.mul_f64(1.0 - JITTER_SHARE * jitter)
    }

    fn failure_time(&self) -> Duration {
        self.evidence.failure_time.unwrap_or(MIN_FAILURE_TIME)
    }

    /// Returns the time without a failed probe after which the target counts as accepting.
    fn patience(&self) -> Duration {
        (self.failure_time() * PATIENCE_FACTOR).max(MIN_PATIENCE)
    }

    /// Records the failed call as a witness of failure if it is a new one (see the [module
    /// documentation](self)), and starts an outage if there are [`OUTAGE_WITNESSES`] of them and
    /// the target has worked before or is worth waiting for. `repeats` is `true` if an earlier
    /// attempt of the call failed and this failure, too, may be the call's own fault.
    fn add_witness(&mut self, call: u64, failure: Failure, repeats: bool) {
        let evidence = &mut self.evidence;
        let is_new_attempt_witness = self.has_worked && matches!(failure, Failure::Unread { .. });
        if is_new_attempt_witness || !repeats && !evidence.failing_calls.contains(&call) {
            push_bounded(&mut evidence.failing_calls, OUTAGE_WITNESSES, call);
        }
        evidence.is_confirmed |= failure != Failure::Other;
        evidence.is_unavailable |= failure != Failure::Limited;
        self.is_worth_waiting |= failure == Failure::Unread { worth_waiting: true };
        evidence.is_down |=
            (self.has_worked || self.is_worth_waiting) && evidence.failing_calls.len() >= OUTAGE_WITNESSES;
    }

    /// Starts a cool-down until `until`, because an earlier target with the same upstream has to
    /// cool down until then.
    pub fn resume(&mut self, now: Instant, until: Instant) {
        self.evidence.is_confirmed = true;
        self.cool(now, until, true);
    }

    /// Ends a cool-down that a `Retry-After` began, because it concerns only some of the calls. Has
    /// no effect on outages. Attempts in flight no longer change the state.
    pub fn end_retry_after(&mut self, now: Instant) {
        if !self.is_down() && self.until().is_some() {
            self.evidence = OutageEvidence::default();
            self.reopen(now, Phase::Open);
        }
    }

    /// Starts a cool-down until `until`, or prolongs the current one. `is_current` is `true` if an
    /// attempt of the current epoch caused it. A prolonged cool-down starts a new epoch only in
    /// that case.
    fn cool(&mut self, now: Instant, until: Instant, is_current: bool) {
        // Prolonging a cool-down does not begin a new one.
        let begins = is_current || self.until().is_none();
        if let Phase::Open = self.phase {
            self.steady_rate = self.successes.rate(now);
        }
        let until = self.until().map_or(until, |present| present.max(until));
        self.phase = Phase::Cooling { until };
        self.closed_since.get_or_insert(now);
        if begins {
            self.epoch += 1;
        }
    }

    /// Starts a ramp at the rate of successes before the cool-down, or at a share of `limit` if
    /// that rate is unknown. `limit` is the number of slots of the target.
    fn start_ramp(&mut self, now: Instant, limit: usize, follows_outage: bool) {
        self.ramp_follows_outage = follows_outage;
        let ramp = Ramp::new(self.steady_rate, (limit as f64 * COLD_START_SHARE).max(1.0));
        // The probe counts as the first attempt of the ramp.
        self.reopen(now, Phase::Ramping { since: now, ramp, admitted: 1 });
    }

    /// Ends the closed period and enters `phase`, in which attempts are admitted.
    fn reopen(&mut self, now: Instant, phase: Phase) {
        self.phase = phase;
        self.retries_from = None;
        self.end_closed_period(now);
    }

    fn end_closed_period(&mut self, now: Instant) {
        if let Some(since) = self.closed_since.take() {
            self.closed_for += now.saturating_duration_since(since);
        }
    }

    /// Enters the next phase if the cool-down, the wait for hanging probes, or the ramp of the
    /// current phase is over.
    fn advance(&mut self, now: Instant, limit: usize) {
        match self.phase {
            Phase::Cooling { until } if until <= now => self.phase = Phase::Probing { in_flight: None },
            Phase::Probing { in_flight: Some(in_flight) }
                if in_flight.unfailed_since + self.patience() <= now =>
            {
                self.start_ramp(now, limit, self.evidence.is_outage());
            }
            Phase::Ramping { since, .. } if since + MAX_RAMP <= now => self.phase = Phase::Open,
            _ => {}
        }
    }
}

/// Returns the time that is added to a `Retry-After`, so that several processes do not continue at
/// the same time. `jitter` is uniform in `[0, 1)`.
fn retry_after_jitter(delay: Duration, jitter: f64) -> Duration {
    ((delay / 10).min(Duration::from_secs(1)) + Duration::from_millis(20)).mul_f64(jitter)
}

#[cfg(test)]
mod tests;
