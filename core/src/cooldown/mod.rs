//! When a target may be sent anything at all: cool-downs, outages, and the way back.
//!
//! Why for the whole target, and not for one call: a provider that says "come back in 3 s" says it to everybody who shares the
//! credential. A retry that only sleeps by itself leaves a hundred others to ask again and be refused again, which stock clients do.
//!
//! ```text
//!            Retry-After, or an outage                 time is up
//!   Open  ---------------------------->  Cooling  ---------------->  Probing (one attempt)
//!    ^                                      ^                          |        |
//!    |                                      |   the probe failed       |        | it succeeded, or has been
//!    |  slots bind, or 10 s                 +--------------------------+        | under way for PATIENCE
//!    +------------------------------------------  Ramping  <--------------------+
//! ```
//!
//! - A provider's Retry-After is a floor: nothing is admitted before it; jitter is added on top.
//! - An **outage** is three witnesses of failure one after the other, with no success between. A witness is a call, since one poisoned call is
//!   no outage; at a target that has worked before, each attempt that was turned away unread is one as well. Then the target is cooled
//!   by the gate's own, short, growing intervals. A target that has never answered (a mistyped URL) is not held: its callers hear at once,
//!   unless a deadline was set, for the call or its target, that says how long to wait.
//! - **Ramping** opens at the rate of the last good ten seconds and doubles every two seconds, so that a minute of held calls returns as a
//!   flow and not as a herd.
//! - Each cool-down begins a new *epoch*. Only attempts admitted in the present epoch are judged, so that the late failures of what
//!   was in flight before do not prolong it (but a longer Retry-After among them does).

mod by_key;
mod throughput;

use std::time::{Duration, Instant};

pub(crate) use by_key::KeyedCooldowns;
use throughput::{Throughput, ramp_due, ramp_earned};

use crate::duration;

/// A probe that has not failed for so many times as long as the last one took to fail is taken as accepted: refusals come fast, generations
/// do not. Within these bounds; the longer where none has failed yet.
const PATIENCE: f64 = 4.0;
const LEAST_PATIENCE: Duration = Duration::from_millis(200);
const MOST_PATIENCE: Duration = Duration::from_secs(1);
/// The ramp doubles its rate in this time.
const DOUBLING: Duration = Duration::from_secs(2);
/// A ramp ends after this long at the latest.
const RAMP: Duration = Duration::from_secs(10);
/// A longer Retry-After concerns the call that got it, not the target: no provider closes for more than a day, and one absurd header must
/// not close a target until the process is restarted.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How late a timer may be.
const LATE: Duration = Duration::from_millis(50);
/// Different calls that fail in a row before a target counts as down.
const OUTAGE: usize = 3;
/// The gate's own intervals between probes of a target that is down. The last bounds both what the outage costs (some 40 attempts a minute,
/// which at few calls a second is many a call) and how late its end is seen.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
const LAST_INTERVAL: Duration = Duration::from_millis(1600);
/// The share of an interval that is drawn, so that the processes of one user do not ask in step.
const SPREAD: f64 = 0.1;
/// Where no rate is known yet, a ramp starts with this share of the limit a second.
const COLD_SHARE: f64 = 0.25;

/// Which cool-down an attempt was admitted after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u64);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Open,
    Cooling { until: Instant },
    Probing { sent: Option<Instant> },
    Ramping { since: Instant, rate: f64, admitted: u32 },
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

/// What a failure means for the call that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The target is as open as before: the call backs off by itself.
    No,
    /// The target is cooling down at the provider's word: the call waits in the queue, without a backoff of its own.
    CoolDown,
    /// The replica that failed it is one of several, and nothing ran there: the call goes to another at once, and the attempt does not count against it.
    Elsewhere,
    /// All replicas that the call may go to turned it away for want of room, and may be asked again: it waits a moment, and the attempt does not count against it.
    Full,
    /// The target is down: as above, and the attempt does not count against the call.
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
    /// It may have run, or was turned away for another reason.
    Other,
}

/// The state machine of one target. Knows no clock: each method is told `now`.
#[derive(Debug)]
pub struct Cooldown {
    phase: Phase,
    epoch: Epoch,
    /// The rate to return to: what succeeded a second before the first failure.
    steady: f64,
    successes: Throughput,
    worked: bool,
    /// Whether it is worth waiting for though it never worked.
    awaited: bool,
    /// The calls that bore witness, one after the other.
    failing: Vec<u64>,
    down: bool,
    /// Intervals of the gate's own since the outage began.
    intervals: u32,
    patience: Duration,
    /// Time spent cooling or probing, up to the last change, and since when if now.
    closed: Duration,
    closed_since: Option<Instant>,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self {
            phase: Phase::Open,
            epoch: Epoch(0),
            steady: 0.0,
            successes: Throughput::default(),
            worked: false,
            awaited: false,
            failing: Vec::with_capacity(OUTAGE),
            down: false,
            intervals: 0,
            patience: MOST_PATIENCE,
            closed: Duration::ZERO,
            closed_since: None,
        }
    }
}

impl Cooldown {
    /// The epoch that an attempt admitted now belongs to.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

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
    pub fn shown(&self, now: Instant) -> State {
        match self.phase {
            Phase::Cooling { until } if until <= now => State::Probing,
            Phase::Ramping { since, .. } if since + RAMP <= now => State::Open,
            _ => self.state(),
        }
    }

    /// Whether the target counts as down.
    pub fn is_down(&self) -> bool {
        self.down
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
        self.closed + self.closed_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether wait budgets stand still now.
    pub fn is_closed(&self) -> bool {
        self.closed_since.is_some()
    }

    /// Whether an attempt may go now; if not, when to ask again (`None`: when the probe is answered).
    pub fn ready(&mut self, now: Instant, limit: usize) -> Result<(), Option<Instant>> {
        if let Phase::Open = self.phase {
            return Ok(());
        }
        self.advance(now, limit);
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Cooling { until } => Err(Some(until)),
            Phase::Probing { sent: None } => Ok(()),
            Phase::Probing { sent: Some(sent) } => Err(Some(sent + self.patience)),
            Phase::Ramping { since, rate, admitted } => {
                let due = duration::after(since, ramp_due(f64::from(admitted), rate, DOUBLING));
                if due <= now { Ok(()) } else { Err(Some(due)) }
            }
        }
    }

    /// An attempt was admitted. `slots_bind`: it took the last slot, so that slots are what paces from here on.
    pub fn admitted(&mut self, now: Instant, slots_bind: bool) {
        match &mut self.phase {
            Phase::Open | Phase::Cooling { .. } => {}
            Phase::Probing { sent } => *sent = Some(now),
            Phase::Ramping { .. } if slots_bind => self.phase = Phase::Open,
            Phase::Ramping { since, rate, admitted } => {
                // What nobody asked for is not saved up for a herd, but for what a timer may be late by.
                let elapsed = now.saturating_duration_since(*since).saturating_sub(LATE);
                *admitted = admitted.saturating_add(1).max(ramp_earned(elapsed, *rate, DOUBLING) as u32);
            }
        }
    }

    /// An attempt of that epoch was accepted by the upstream.
    pub fn succeeded(&mut self, now: Instant, epoch: Epoch, limit: usize) {
        if epoch != self.epoch {
            return;
        }
        self.worked = true;
        self.down = false;
        self.intervals = 0;
        self.failing.clear();
        if let Phase::Probing { .. } = self.phase {
            self.ramp(now, limit);
        }
        self.successes.count(now);
    }

    /// An attempt of that epoch ended without an answer (cancelled): if it was the probe, the next one is.
    pub fn inconclusive(&mut self, epoch: Epoch) {
        if epoch == self.epoch
            && let Phase::Probing { sent } = &mut self.phase
        {
            *sent = None;
        }
    }

    /// An attempt of that epoch failed in a way that a retry may mend; `call` tells calls apart. `delay` is the provider's Retry-After; `jitter` is uniform in [0, 1).
    pub fn failed(
        &mut self,
        now: Instant,
        call: u64,
        failure: Failure,
        epoch: Epoch,
        delay: Option<Duration>,
        jitter: f64,
    ) -> Hold {
        let present = epoch == self.epoch;
        if present {
            self.testify(call, failure);
        }
        let mut took = Duration::ZERO;
        if present && let Phase::Probing { sent: Some(sent) } = self.phase {
            took = now.saturating_duration_since(sent);
            self.patience = took.mul_f64(PATIENCE).clamp(LEAST_PATIENCE, MOST_PATIENCE);
        }
        // A probe that failed says that the target is not back: no second and third witness are needed. On the ramp they are: an upstream that
        // fails one call in twenty would otherwise never get to its end.
        let relapse = present && matches!(self.phase, Phase::Probing { .. });
        if let Some(delay) = delay.filter(|delay| *delay <= LONGEST) {
            self.cool(now, now + delay + spread(delay, jitter), present);
        } else if present && (self.down || relapse) {
            let interval = FIRST_INTERVAL.saturating_mul(1 << self.intervals.min(10)).min(LAST_INTERVAL);
            self.intervals += 1;
            // From one probe's sending to the next one's, however long the first took to fail.
            let interval =
                interval.mul_f64(1.0 - SPREAD * jitter).saturating_sub(took).max(FIRST_INTERVAL / 2);
            self.cool(now, now + interval, true);
        }
        match self.phase {
            _ if self.down => Hold::Outage,
            Phase::Cooling { .. } => Hold::CoolDown,
            _ => Hold::No,
        }
    }

    /// Hears a witness, and decides whether the target is down.
    fn testify(&mut self, call: u64, failure: Failure) {
        let anew = self.worked && failure != Failure::Other;
        if anew || !self.failing.contains(&call) {
            if self.failing.len() == OUTAGE {
                self.failing.remove(0);
            }
            self.failing.push(call);
        }
        self.awaited |= failure == Failure::Unread { worth_waiting: true };
        self.down |= (self.worked || self.awaited) && self.failing.len() >= OUTAGE;
    }

    /// Continues a cool-down that began at a shared target.
    pub(crate) fn resume(&mut self, now: Instant, until: Instant) {
        self.cool(now, until, true);
    }

    fn cool(&mut self, now: Instant, until: Instant, present: bool) {
        // What only prolongs a cool-down does not begin one.
        let begins = present || self.until().is_none();
        if let Phase::Open = self.phase {
            self.steady = self.successes.rate(now);
        }
        let until = self.until().map_or(until, |present| present.max(until));
        self.phase = Phase::Cooling { until };
        self.closed_since.get_or_insert(now);
        if begins {
            self.epoch.0 += 1;
        }
    }

    fn ramp(&mut self, now: Instant, limit: usize) {
        let cold = (limit as f64 * COLD_SHARE).max(1.0);
        let rate = if self.steady > 0.0 { self.steady } else { cold };
        // The probe was the first.
        self.phase = Phase::Ramping { since: now, rate, admitted: 1 };
        if let Some(since) = self.closed_since.take() {
            self.closed += now.saturating_duration_since(since);
        }
    }

    fn advance(&mut self, now: Instant, limit: usize) {
        match self.phase {
            Phase::Cooling { until } if until <= now => self.phase = Phase::Probing { sent: None },
            Phase::Probing { sent: Some(sent) } if sent + self.patience <= now => self.ramp(now, limit),
            Phase::Ramping { since, .. } if since + RAMP <= now => self.phase = Phase::Open,
            _ => {}
        }
    }
}

/// Returns the jitter added to a Retry-After, so that the calls of one user do not return in step.
fn spread(delay: Duration, jitter: f64) -> Duration {
    ((delay / 10).min(Duration::from_secs(1)) + Duration::from_millis(20)).mul_f64(jitter)
}

#[cfg(test)]
mod tests;
