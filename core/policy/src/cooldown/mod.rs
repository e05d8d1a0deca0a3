//! When a target may be sent anything at all: cool-downs, outages, and the way back.
//!
//! Why for the whole target, and not for one call: a provider that says "come back in 3 s" says it to everybody who shares the
//! credential. A retry that only sleeps by itself leaves a hundred others to ask again and be refused again, which stock clients do.
//!
//! ```text
//!            Retry-After, or an outage                 time is up
//!   Open  ---------------------------->  Cooling  ---------------->  Probing  --+ the last probe hangs:
//!    ^                                      ^                          |  | ^   | another one each interval
//!    |                                      |   the last probe failed  |  | +---+
//!    |                                      +--------------------------+  |
//!    |  slots bind, or 10 s                    a probe succeeded, or none |
//!    +-------------------------  Ramping  <-------------------------------+
//!    |                                         has failed for PATIENCE    |
//!    +--------------------------------------------------------------------+
//!        a probe succeeded, and only calls that fail anywhere had failed
//! ```
//!
//! - A provider's Retry-After is a floor: nothing is admitted before it; jitter is added on top.
//! - An **outage** is three witnesses of failure one after the other, with no success between. A witness is a call, since one poisoned call is
//!   no outage; at a target that has worked before, each attempt that was turned away unread is one as well. Then the target is cooled
//!   by the gate's own, short, growing intervals. A target that has never answered (a mistyped URL) is not held: its callers hear at once,
//!   unless a deadline was set, for the call or its target, that says how long to wait.
//! - The **probe** is a call that has not failed here before, if one waits: an error may be the call's own. A call that fails again is
//!   no new witness, and if it was the probe, the next call that has not failed here follows after the shortest interval.
//!   If that one is accepted, and nothing but calls of their own has failed, there was no outage: the target is open at once.
//! - While a probe **hangs**, another one is admitted each interval. The target counts as accepting once no probe has failed for
//!   several times as long as failures take here, so a hanging target is not taken for one that accepts.
//! - **Ramping** opens at the rate of the last good ten seconds and doubles every two seconds, so that a minute of held calls returns as a
//!   flow and not as a herd. If that rate is not known, it opens at a share of the limit, and is never more than a second behind that.
//! - Each cool-down, and each probe that succeeds, begins a new *epoch*. Only attempts admitted in the present epoch are judged, so that
//!   the late failures of earlier attempts neither prolong a cool-down nor begin one. A late Retry-After prolongs a cool-down. Once that
//!   is over, it is counted from when its attempt was sent, and concerns its call alone if that time has passed.
//!
//! The reasons are in `docs/design/cool-down.md`.

mod by_key;
mod outcome;
mod throughput;

use std::time::{Duration, Instant};

pub use by_key::KeyedCooldowns;
use throughput::{Ramp, Throughput};

use tidegate_protocol::duration;

/// The target counts as accepting once no probe has failed for this many times as long as failures take: refusals come fast, generations
/// do not.
const PATIENCE_FACTOR: u32 = 4;
/// The shortest patience, since the time until a refusal varies.
const MIN_PATIENCE: Duration = Duration::from_millis(200);
/// The least time that a failure is assumed to take until a probe has failed.
const MIN_FAILURE_TIME: Duration = Duration::from_millis(250);
/// The longest time that a failure is assumed to take. Longer than any client waits for an answer's head by default.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(15 * 60);
/// The most probes that hang at the same time: the interval between them is this part of the time until a failure.
const MAX_HANGING_PROBES: u32 = 8;
/// A ramp ends after this long at the latest.
const MAX_RAMP: Duration = Duration::from_secs(10);
/// A longer Retry-After concerns the call that got it, not the target: no provider closes for more than a day, and one absurd header must
/// not close a target until the process is restarted.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);
/// How late a timer may be.
const TIMER_SLACK: Duration = Duration::from_millis(50);
/// Different calls that fail in a row before a target counts as down.
const OUTAGE_WITNESSES: usize = 3;
/// The gate's own intervals between probes of a target that is down. The last bounds both what the outage costs (some 40 attempts a minute,
/// which at few calls a second is many a call; up to 65 if calls that have failed here alternate with others) and how late its end is seen.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(250);
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(1600);
/// The share of an interval that is drawn, so that the processes of one user do not ask in step.
const JITTER_SHARE: f64 = 0.1;
/// If no rate is known, a ramp starts with this share of the limit a second.
const COLD_START_SHARE: f64 = 0.25;

/// Which cool-down an attempt was admitted after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u64);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Open,
    Cooling {
        until: Instant,
    },
    /// `None`: the first probe is still to come, or the last one was cancelled.
    Probing {
        in_flight: Option<Probes>,
    },
    Ramping {
        since: Instant,
        ramp: Ramp,
        admitted: u32,
    },
}

/// The probes that are under way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probes {
    /// When the last of them was sent.
    last_sent: Instant,
    /// When the first of them was sent, or a later failure of one of them.
    unfailed_since: Instant,
}

/// An admitted attempt, as its target's cool-down knows it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    epoch: Epoch,
    sent: Instant,
    has_failed: bool,
}

impl Attempt {
    /// When the attempt was admitted.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// Returns `true` if an earlier attempt of its call failed in a way that may be the call's own doing.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

/// The name of a phase, for snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    Open,
    Cooling,
    Probing,
    Ramping,
}

impl State {
    /// The stable name.
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

/// How an attempt failed, as far as its target's state depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It never ran: no connection was made, or the upstream turned it away unread for want of room (503, 529). `worth_waiting`: also at a
    /// target that never worked, since the upstream said so, or the caller set a deadline, and so said how long it would wait.
    Unread {
        /// See above.
        worth_waiting: bool,
    },
    /// The upstream turned it away because calls come too fast (429).
    Limited,
    /// It may have run, or was turned away for another reason.
    Other,
}

/// The state machine of one target. Knows no clock: each method is told `now`.
#[derive(Debug)]
pub struct Cooldown {
    phase: Phase,
    epoch: Epoch,
    /// The rate to return to: what succeeded a second before the first failure, if that is known.
    steady_rate: Option<f64>,
    successes: Throughput,
    has_worked: bool,
    /// Whether it is worth waiting for though it never worked.
    is_worth_waiting: bool,
    /// The calls that bore witness, one after the other.
    failing_calls: Vec<u64>,
    is_down: bool,
    /// Whether the target said itself that it is closed, turned a call away, or failed a probe whose call had not failed here:
    /// otherwise only calls have failed that may fail anywhere.
    is_confirmed: bool,
    /// Intervals of the gate's own since the outage began.
    intervals: u32,
    /// A call that has failed here is not the probe before this time.
    retries_from: Option<Instant>,
    /// The time that failures take here.
    failure_time: Duration,
    /// Time spent cooling or probing, up to the last change, and since when if now.
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
    /// The phase's name.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Open => State::Open,
            Phase::Cooling { .. } => State::Cooling,
            Phase::Probing { .. } => State::Probing,
            Phase::Ramping { .. } => State::Ramping,
        }
    }

    /// The phase's name for somebody who looks: a cool-down or a ramp that is over is not shown as one, though nothing has asked since.
    pub fn state_at(&self, now: Instant) -> State {
        match self.phase {
            Phase::Cooling { until } if until <= now => State::Probing,
            Phase::Ramping { since, .. } if since + MAX_RAMP <= now => State::Open,
            _ => self.state(),
        }
    }

    /// Whether the target counts as down.
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// The moment before which nothing is admitted, while cooling.
    pub fn until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Cooling { until } => Some(until),
            _ => None,
        }
    }

    /// How long wait budgets have been stopped by cool-downs, in all.
    pub fn closed(&self, now: Instant) -> Duration {
        self.closed_for
            + self.closed_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether wait budgets stand still now.
    pub fn is_closed(&self) -> bool {
        self.closed_since.is_some()
    }

    /// Returns `true` if what is admitted now is a probe. As of the last call of [`Cooldown::ready`].
    pub fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. })
    }

    /// Whether an attempt may go now; if not, when to ask again. `has_failed`: see [`Attempt::has_failed`].
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

    /// Counts an attempt that is admitted now. `slots_bind`: it took the last slot, so that slots are what paces from here on.
    pub fn admit(&mut self, now: Instant, has_failed: bool, slots_bind: bool) -> Attempt {
        match &mut self.phase {
            Phase::Open | Phase::Cooling { .. } => {}
            Phase::Probing { in_flight } => {
                let unfailed_since = in_flight.map_or(now, |in_flight| in_flight.unfailed_since);
                *in_flight = Some(Probes { last_sent: now, unfailed_since });
            }
            Phase::Ramping { .. } if slots_bind => self.phase = Phase::Open,
            Phase::Ramping { since, ramp, admitted } => {
                // What nobody asked for is not saved up for a herd, but for what a timer may be late by.
                let elapsed = now.saturating_duration_since(*since).saturating_sub(TIMER_SLACK);
                *admitted = admitted.saturating_add(1).max(ramp.earned(elapsed) as u32);
            }
        }
        Attempt { epoch: self.epoch, sent: now, has_failed }
    }

    /// The upstream accepted an attempt.
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
            // What hangs of the other probes says nothing of the target from here on.
            self.epoch.0 += 1;
        }
        self.successes.count(now);
    }

    /// An attempt ended without an answer (cancelled): if it was the last probe, the next one may go.
    pub fn on_cancelled(&mut self, attempt: Attempt) {
        if attempt.epoch == self.epoch
            && let Phase::Probing { in_flight } = &mut self.phase
        {
            *in_flight = in_flight.filter(|in_flight| in_flight.last_sent != attempt.sent);
        }
    }

    /// An attempt failed in a way that a retry may mend; `call` tells calls apart. `delay` is the provider's Retry-After; `jitter` is uniform in [0, 1).
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
            // The target has been asked since, so it is held for the rest of the delay only. The call itself waits for all of it.
            let ends = attempt.sent + delay;
            if ends > now {
                self.is_confirmed = true;
                self.cool(now, ends + retry_after_jitter(delay, jitter), false);
            }
            return Hold::No;
        }
        let is_probe = present && self.is_probing();
        // The call fails wherever it is sent, for all that is known.
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
            // A probe that failed says that the target is not back: no second and third witness are needed. On the ramp they are: an upstream
            // that fails one call in twenty would otherwise never get to its end.
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

    /// Cools the target for an interval, unless another probe was sent since. `repeats`: the call has failed here before.
    fn probe_failed(&mut self, now: Instant, sent: Instant, repeats: bool, jitter: f64) {
        self.is_confirmed |= !repeats;
        if let Phase::Probing { in_flight: Some(in_flight) } = &mut self.phase {
            in_flight.unfailed_since = now;
            if in_flight.last_sent != sent {
                return;
            }
        }
        // From one probe's sending to the next one's, however long the first took to fail.
        let took = now.saturating_duration_since(sent);
        let after = |interval: Duration| now + interval.saturating_sub(took).max(MIN_PROBE_INTERVAL / 2);
        let next = after(self.next_interval(jitter));
        self.retries_from = Some(next);
        self.cool(now, if repeats { next.min(after(MIN_PROBE_INTERVAL)) } else { next }, true);
    }

    /// The next of the gate's own intervals.
    fn next_interval(&mut self, jitter: f64) -> Duration {
        let interval = MIN_PROBE_INTERVAL.saturating_mul(1 << self.intervals.min(10)).min(MAX_PROBE_INTERVAL);
        self.intervals += 1;
        interval.mul_f64(1.0 - JITTER_SHARE * jitter)
    }

    /// The time without a failure after which the probes count as accepted.
    fn patience(&self) -> Duration {
        (self.failure_time * PATIENCE_FACTOR).max(MIN_PATIENCE)
    }

    /// Hears a witness, and decides whether the target is down.
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

    /// Continues a cool-down that began at a shared target.
    pub fn resume(&mut self, now: Instant, until: Instant) {
        self.is_confirmed = true;
        self.cool(now, until, true);
    }

    fn cool(&mut self, now: Instant, until: Instant, present: bool) {
        // What only prolongs a cool-down does not begin one.
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

    fn start_ramp(&mut self, now: Instant, limit: usize) {
        let ramp = Ramp::new(self.steady_rate, (limit as f64 * COLD_START_SHARE).max(1.0));
        // The probe was the first.
        self.reopen(now, Phase::Ramping { since: now, ramp, admitted: 1 });
    }

    fn reopen(&mut self, now: Instant, phase: Phase) {
        self.phase = phase;
        self.retries_from = None;
        if let Some(since) = self.closed_since.take() {
            self.closed_for += now.saturating_duration_since(since);
        }
    }

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
