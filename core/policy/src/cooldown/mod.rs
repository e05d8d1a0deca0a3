//! Cool-down state machine: decides when a target may be sent attempts after a failure.
//!
//! The cool-down holds the whole target, not one call. A provider's "come back in 3 s" applies to
//! everybody who shares the credential. A retry that only sleeps by itself leaves a hundred others
//! to ask again and be rejected again, which is what stock clients do.
//!
//! # Algorithm
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
//! - **Outage**: three witnesses of failure in a row, without a success in between. A witness is a
//!   distinct call, because one invalid call is no outage. At a target that has worked before, each
//!   attempt that was rejected unread is a witness as well. An outage cools the target by short,
//!   growing intervals. A target that has never worked (for example a mistyped URL) is not cooled,
//!   so its callers get the error at once, unless a deadline of the call or target says how long to
//!   wait.
//! - **Probe**: a call that has not failed here before, if one waits, because a failure may be the
//!   call's own fault. A call that fails again is no new witness. If it was the probe, the next
//!   call that has not failed here follows after the shortest interval. If that call is accepted,
//!   and only calls of their own fault have failed, there was no outage, and the target opens at
//!   once.
//! - **Hanging probe**: while a probe has neither succeeded nor failed, another one is admitted per
//!   interval. The target counts as accepting after no probe has failed for several times the usual
//!   failure time.
//! - **Ramp**: the target reopens at the rate of the last good ten seconds, which doubles every two
//!   seconds, so that a minute of held calls does not arrive at once. If that rate is unknown, the
//!   ramp starts at a share of the limit. A ramp with a known rate is never more than a second
//!   behind that one.
//! - **Epoch**: each cool-down and each successful probe starts a new epoch. Only attempts of the
//!   current epoch change the state, so late failures of earlier attempts neither prolong nor start
//!   a cool-down. A late Retry-After prolongs a running cool-down. After the cool-down it is
//!   counted from when its attempt was sent, and if that time has passed, it applies to its call
//!   alone.
//!
//! # Rationale
//!
//! See `docs/design/cool-down.md`.

mod by_key;
mod outcome;
mod throughput;

use std::time::{Duration, Instant};

pub use by_key::KeyedCooldowns;
use throughput::{Ramp, Throughput};

use tidegate_protocol::duration;

/// The target counts as accepting after no probe has failed for this many times the usual failure
/// time: rejections are fast, generations are not.
const PATIENCE_FACTOR: u32 = 4;
/// Minimum patience, because the time until a rejection varies.
const MIN_PATIENCE: Duration = Duration::from_millis(200);
/// Minimum failure time that is assumed until a probe has failed.
const MIN_FAILURE_TIME: Duration = Duration::from_millis(250);
/// Maximum failure time that is assumed. Longer than any client waits for a response head by
/// default.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(15 * 60);
/// Maximum number of hanging probes: the interval between them is this fraction of the failure
/// time.
const MAX_HANGING_PROBES: u32 = 8;
/// Maximum duration of a ramp.
const MAX_RAMP: Duration = Duration::from_secs(10);
/// Maximum Retry-After that holds the target. A longer one applies to its call alone, so that one
/// absurd header cannot close a target until the process restarts.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);
/// Maximum delay of a timer.
const TIMER_SLACK: Duration = Duration::from_millis(50);
/// Number of consecutive witnesses of failure that make an outage.
const OUTAGE_WITNESSES: usize = 3;
/// Shortest and longest interval between the probes of an outage.
///
/// The longest interval bounds both the cost of the outage (about 40 attempts per minute, up to 65
/// if calls that have failed here alternate with others) and the delay until its end is detected.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(250);
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(1600);
/// Share of an interval that is random, so that the processes of one user do not probe in step.
const JITTER_SHARE: f64 = 0.1;
/// Attempts per second at the start of a ramp without a known rate, as a share of the limit.
const COLD_START_SHARE: f64 = 0.25;

/// Identifies the cool-down after which an attempt was admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u64);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Open,
    Cooling {
        until: Instant,
    },
    /// `None` before the first probe, and after the last one was cancelled.
    Probing {
        in_flight: Option<Probes>,
    },
    Ramping {
        since: Instant,
        ramp: Ramp,
        admitted: u32,
    },
}

/// The probes in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probes {
    /// When the last probe was sent.
    last_sent: Instant,
    /// When the first probe was sent, or when a probe last failed.
    unfailed_since: Instant,
}

/// An admitted attempt, as the cool-down of its target sees it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    epoch: Epoch,
    sent: Instant,
    has_failed: bool,
}

impl Attempt {
    /// Returns when the attempt was admitted.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// Returns `true` if an earlier attempt of its call failed in a way that may be the call's own
    /// fault.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

/// The state of a target, for snapshots and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Attempts are admitted.
    Open,
    /// No attempt is admitted before a known time.
    Cooling,
    /// Single attempts find out whether the target works again.
    Probing,
    /// Attempts are admitted at a growing rate.
    Ramping,
}

impl State {
    /// Returns the stable name used in metrics and snapshots, such as `"cooling"`.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Cooling => "cooling",
            State::Probing => "probing",
            State::Ramping => "ramping",
        }
    }
}

/// What a failed attempt means for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The target is not held: the call backs off by itself.
    No,
    /// The target cools down because the provider asked callers to wait. The call waits in the queue,
    /// without a backoff of its own.
    CoolDown,
    /// The request did not run, and another replica may take it. The call goes there at once, and the
    /// attempt does not count against it.
    RetryOther,
    /// All replicas that the call may go to have no room now. The call waits for a moment, and the
    /// attempt does not count against it.
    AllFull,
    /// The target is down. The call waits in the queue, and the attempt does not count against it.
    Outage,
}

/// How an attempt failed, as far as the state of its target depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The upstream did not read the request: no connection was made, or it was rejected for lack
    /// of capacity (503, 529).
    Unread {
        /// Whether calls wait for the target even if it has never worked: the upstream asked for
        /// it, or the caller set a deadline.
        worth_waiting: bool,
    },
    /// The upstream rejected the request because calls arrive too fast (429).
    Limited,
    /// The request may have run, or was rejected for another reason.
    Other,
}

/// The cool-down state machine of one target. Each method takes the current time as `now`.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate_policy::cooldown::{Cooldown, Failure, State};
///
/// let now = Instant::now();
/// let mut target = Cooldown::default();
/// let attempt = target.admit(now, false, false);
/// let retry_after = Some(Duration::from_secs(3));
/// target.on_failure(now, 1, Failure::Limited, attempt, retry_after, 0.0);
/// assert_eq!(target.state(), State::Cooling);
/// assert_eq!(target.ready(now, 8, false), Err(now + Duration::from_secs(3)));
/// ```
#[derive(Debug)]
pub struct Cooldown {
    phase: Phase,
    epoch: Epoch,
    /// Rate to return to: successes per second before the first failure, if known.
    steady_rate: Option<f64>,
    successes: Throughput,
    has_worked: bool,
    /// Whether calls wait for the target even if it has never worked.
    is_worth_waiting: bool,
    /// The calls that were witnesses of failure, in order.
    failing_calls: Vec<u64>,
    is_down: bool,
    /// Whether the target itself reported that it is closed, rejected a call, or failed a probe of
    /// a call that had not failed here. Otherwise only calls have failed that may fail anywhere.
    is_confirmed: bool,
    /// Number of probe intervals since the outage began.
    intervals: u32,
    /// Time before which a call that has failed here is not the probe.
    retries_from: Option<Instant>,
    /// Usual time from sending an attempt to its failure.
    failure_time: Duration,
    /// Time spent cooling or probing until the last change, and the start of the current closed
    /// period.
    closed_for: Duration,
    closed_since: Option<Instant>,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self {
            phase: Phase::Open,
            epoch: Epoch(0),
            steady_rate: None,
            successes: Throughput::default(),
            has_worked: false,
            is_worth_waiting: false,
            failing_calls: Vec::with_capacity(OUTAGE_WITNESSES),
            is_down: false,
            is_confirmed: false,
            intervals: 0,
            retries_from: None,
            failure_time: MIN_FAILURE_TIME,
            closed_for: Duration::ZERO,
            closed_since: None,
        }
    }
}

impl Cooldown {
    /// Returns the state as of the last event.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Open => State::Open,
            Phase::Cooling { .. } => State::Cooling,
            Phase::Probing { .. } => State::Probing,
            Phase::Ramping { .. } => State::Ramping,
        }
    }

    /// Returns the state at `now`. Unlike [`Cooldown::state`], a cool-down or ramp that has expired
    /// is not reported, even if no call has asked since.
    pub fn state_at(&self, now: Instant) -> State {
        match self.phase {
            Phase::Cooling { until } if until <= now => State::Probing,
            Phase::Ramping { since, .. } if since + MAX_RAMP <= now => State::Open,
            _ => self.state(),
        }
    }

    /// Returns `true` if the target is in an outage.
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// Returns the time before which no attempt is admitted, if the target is cooling.
    pub fn until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Cooling { until } => Some(until),
            _ => None,
        }
    }

    /// Returns how long wait budgets have been paused by cool-downs, in total.
    pub fn closed(&self, now: Instant) -> Duration {
        self.closed_for
            + self.closed_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns `true` if wait budgets are paused now.
    pub fn is_closed(&self) -> bool {
        self.closed_since.is_some()
    }

    /// Returns `true` if the next admitted attempt is a probe, as of the last call of
    /// [`Cooldown::ready`].
    pub fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. })
    }

    /// Returns `Ok` if an attempt may be admitted now.
    ///
    /// `limit` is the target's number of slots, and `has_failed` as in [`Attempt::has_failed`].
    ///
    /// # Errors
    ///
    /// Returns the time at which to ask again if no attempt may be admitted.
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
                    in_flight.last_sent + (self.failure_time / MAX_HANGING_PROBES).max(MAX_PROBE_INTERVAL)
                });
                let next = next.max(self.retries_from.filter(|_| has_failed).unwrap_or(now));
                in_flight.map_or(next, |in_flight| next.min(in_flight.unfailed_since + self.patience()))
            }
            Phase::Ramping { since, ramp, admitted } => duration::after(since, ramp.due(f64::from(admitted))),
        };
        if due <= now { Ok(()) } else { Err(due) }
    }

    /// Records an attempt that is admitted now. `slots_bind` is `true` if it took the last slot, so
    /// that slots pace the target from now on.
    pub fn admit(&mut self, now: Instant, has_failed: bool, slots_bind: bool) -> Attempt {
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
        Attempt { epoch: self.epoch, sent: now, has_failed }
    }

    /// Handles a success of an attempt.
    pub fn on_success(&mut self, now: Instant, attempt: Attempt, limit: usize) {
        if attempt.epoch != self.epoch {
            return;
        }
        self.has_worked = true;
        self.is_down = false;
        self.intervals = 0;
        self.failing_calls.clear();
        self.failure_time = MIN_FAILURE_TIME;
        let is_confirmed = std::mem::take(&mut self.is_confirmed);
        if self.is_probing() {
            if is_confirmed {
                self.start_ramp(now, limit);
            } else {
                self.reopen(now, Phase::Open);
            }
            // The remaining hanging probes say nothing about the target from now on.
            self.epoch.0 += 1;
        }
        self.successes.count(now);
    }

    /// Handles a cancelled attempt. If it was the last probe, the next one may be admitted.
    pub fn on_cancelled(&mut self, attempt: Attempt) {
        if attempt.epoch == self.epoch
            && let Phase::Probing { in_flight } = &mut self.phase
        {
            *in_flight = in_flight.filter(|in_flight| in_flight.last_sent != attempt.sent);
        }
    }

    /// Handles a failure that a retry may fix. Returns what it means for the call.
    ///
    /// `call` identifies the call, `delay` is the provider's Retry-After, and `jitter` is uniform
    /// in [0, 1).
    pub fn on_failure(
        &mut self,
        now: Instant,
        call: u64,
        failure: Failure,
        attempt: Attempt,
        delay: Option<Duration>,
        jitter: f64,
    ) -> Hold {
        let present = attempt.epoch == self.epoch;
        let delay = delay.filter(|delay| *delay <= MAX_DELAY);
        let is_cooling = self.until().is_some_and(|until| until > now);
        if let Some(delay) = delay.filter(|_| !present && !is_cooling) {
            // The target was asked since, so it is held only for the rest of the delay. The call
            // itself waits for all of it.
            let ends = attempt.sent + delay;
            if ends > now {
                self.is_confirmed = true;
                self.cool(now, ends + retry_after_jitter(delay, jitter), false);
            }
            return Hold::No;
        }
        let is_probe = present && self.is_probing();
        // As far as is known, the call fails wherever it is sent.
        let repeats = attempt.has_failed && failure == Failure::Other;
        if present {
            let took = now.saturating_duration_since(attempt.sent).min(MAX_FAILURE_TIME);
            self.failure_time = if is_probe { took } else { self.failure_time.max(took) };
            self.add_witness(call, failure, repeats);
        }
        if let Some(delay) = delay {
            self.is_confirmed = true;
            self.cool(now, now + delay + retry_after_jitter(delay, jitter), present);
        } else if is_probe {
            // A failed probe shows that the target is not back, without further witnesses. A ramp
            // needs them: otherwise an upstream that fails one call in twenty would never reach its
            // end.
            self.probe_failed(now, attempt.sent, repeats, jitter);
        } else if present && self.is_down && !repeats {
            let interval = self.next_interval(jitter);
            self.cool(now, now + interval, true);
        }
        match self.phase {
            _ if self.is_down && self.is_closed() => Hold::Outage,
            Phase::Cooling { .. } => Hold::CoolDown,
            Phase::Probing { .. } if is_probe => Hold::CoolDown,
            _ => Hold::No,
        }
    }

    /// Cools the target for one interval, unless another probe was sent since. `repeats` is `true`
    /// if the call has failed here before.
    fn probe_failed(&mut self, now: Instant, sent: Instant, repeats: bool, jitter: f64) {
        self.is_confirmed |= !repeats;
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

    /// Returns the next probe interval.
    fn next_interval(&mut self, jitter: f64) -> Duration {
        let interval = MIN_PROBE_INTERVAL.saturating_mul(1 << self.intervals.min(10)).min(MAX_PROBE_INTERVAL);
        self.intervals += 1;
        interval.mul_f64(1.0 - JITTER_SHARE * jitter)
    }

    /// Returns the time without a failure after which hanging probes count as accepted.
    fn patience(&self) -> Duration {
        (self.failure_time * PATIENCE_FACTOR).max(MIN_PATIENCE)
    }

    /// Adds a witness of failure, and decides whether the target is down.
    fn add_witness(&mut self, call: u64, failure: Failure, repeats: bool) {
        let is_new_attempt_witness = self.has_worked && matches!(failure, Failure::Unread { .. });
        if is_new_attempt_witness || !repeats && !self.failing_calls.contains(&call) {
            if self.failing_calls.len() == OUTAGE_WITNESSES {
                self.failing_calls.remove(0);
            }
            self.failing_calls.push(call);
        }
        self.is_confirmed |= failure != Failure::Other;
        self.is_worth_waiting |= failure == Failure::Unread { worth_waiting: true };
        self.is_down |=
            (self.has_worked || self.is_worth_waiting) && self.failing_calls.len() >= OUTAGE_WITNESSES;
    }

    /// Continues a cool-down until `until` that began at a shared target.
    pub fn resume(&mut self, now: Instant, until: Instant) {
        self.is_confirmed = true;
        self.cool(now, until, true);
    }

    /// Starts or prolongs a cool-down.
    fn cool(&mut self, now: Instant, until: Instant, present: bool) {
        // Prolonging a cool-down does not begin a new one.
        let begins = present || self.until().is_none();
        if let Phase::Open = self.phase {
            self.steady_rate = self.successes.rate(now);
        }
        let until = self.until().map_or(until, |present| present.max(until));
        self.phase = Phase::Cooling { until };
        self.closed_since.get_or_insert(now);
        if begins {
            self.epoch.0 += 1;
        }
    }

    /// Starts a ramp.
    fn start_ramp(&mut self, now: Instant, limit: usize) {
        let ramp = Ramp::new(self.steady_rate, (limit as f64 * COLD_START_SHARE).max(1.0));
        // The probe counts as the first attempt of the ramp.
        self.reopen(now, Phase::Ramping { since: now, ramp, admitted: 1 });
    }

    /// Ends the closed period.
    fn reopen(&mut self, now: Instant, phase: Phase) {
        self.phase = phase;
        self.retries_from = None;
        if let Some(since) = self.closed_since.take() {
            self.closed_for += now.saturating_duration_since(since);
        }
    }

    /// Applies the changes that the passing of time causes.
    fn advance(&mut self, now: Instant, limit: usize) {
        match self.phase {
            Phase::Cooling { until } if until <= now => self.phase = Phase::Probing { in_flight: None },
            Phase::Probing { in_flight: Some(in_flight) }
                if in_flight.unfailed_since + self.patience() <= now =>
            {
                self.start_ramp(now, limit);
            }
            Phase::Ramping { since, .. } if since + MAX_RAMP <= now => self.phase = Phase::Open,
            _ => {}
        }
    }
}

/// Returns the jitter added to a Retry-After, so that the calls of one user do not return in step.
fn retry_after_jitter(delay: Duration, jitter: f64) -> Duration {
    ((delay / 10).min(Duration::from_secs(1)) + Duration::from_millis(20)).mul_f64(jitter)
}

#[cfg(test)]
mod tests;
