//! Collects the observations of the current step, and decides when the step is complete.
//!
//! - A step is evaluated by attempts *sent* in it, and by calls *admitted* in it after the cap was
//!   full, because earlier ones experienced another load.
//! - A rejected attempt ends at once, an accepted one much later. In a young step, failures are
//!   known before successes. Held slots therefore count as accepted when deciding on a rejection,
//!   and never when deciding on an acceptance.
//! - A rejection ends a step at once. An acceptance requires that the throughput is known as well
//!   as the purpose of the step needs.

mod results;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::positions::AttemptMark;
use super::service_time::{Sample, ServiceTime};
use super::sprt::{ShareVerdict, Sprt};
use crate::observation::{
    AttemptFailure, AttemptObservation, BlockedBy, CallObservation, FailureCause, LimitHint, LoadSample,
};
use crate::result::Purpose;

/// Minimum share of the cap in use for the cap to count as held.
const MIN_HELD_SHARE: f64 = 0.95;
/// CPU usage above which, and timer delay in seconds above which, the client cannot be trusted to
/// send in time.
const MAX_CPU: f64 = 0.93;
const MAX_LAG_S: f64 = 0.1;
/// A step is invalid if the client is late or leaves slots free for this share of the time.
const CLIENT_SHARE: f64 = 0.2;
/// A step is also invalid if a single slot is free for this share of the time.
const SINGLE_SLOT_SHARE: f64 = 0.5;
/// A step is rate limited if a rate limit holds calls back for this share of the time.
const RATE_LIMITED_SHARE: f64 = 0.1;
/// Length of a window for counting completions, in call times.
const WINDOW_CALL_TIMES: f64 = 2.0;
/// Number of 429s, or seconds in which the gate held calls back for a rate, that show that no
/// credit is left.
const MIN_429S: usize = 3;
const MIN_HELD_BACK_S: f64 = 1.0;
/// Minimum number of answered calls for reporting the throughput of a step.
const MIN_REPORTED_CALLS: usize = 8;
/// Maximum number of calls of a drain that meets no limit.
const MAX_DRAIN_CALLS: usize = 300;
/// Maximum share of rejected attempts at a cap that the rate sustains, and the number of attempts
/// required.
const MAX_REJECTED_SHARE: f64 = 0.3;
/// Minimum number of attempts for that share.
const MIN_REJECTION_ATTEMPTS: usize = 10;
/// Minimum number of calls accepted at the full cap before a rejection there shows that something
/// was used up.
const MIN_TURNED_OVER: usize = 5;
/// Number of attempts after which an undecided step ends.
const MAX_ATTEMPTS: usize = 800;
/// Number of rejected requests, without any answered call, that show that the requests themselves
/// are invalid.
const MIN_REJECTED_REQUESTS: usize = 12;

/// What a step must establish before it ends, unless it is rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StoppingRule {
    /// Minimum number of calls.
    pub(super) calls: usize,
    /// Maximum relative error of the service time,
    pub(super) error: f64,
    /// unless this many calls were observed.
    pub(super) most: usize,
    /// Whether the share of failures must be known to be acceptable.
    pub(super) accept: bool,
}

/// How a step is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepMode {
    /// Evaluates whether the cap is usable, and its throughput.
    Plain,
    /// Uses up the saved credit of a rate limit. Ends when no credit is left and `calls` more calls
    /// were accepted.
    Drain { calls: usize },
    /// Runs at a rate limit, which may hold calls back now and then.
    Paced,
}

/// Inputs of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepTask {
    pub(super) step: usize,
    pub(super) cap: usize,
    pub(super) purpose: Purpose,
    pub(super) need: StoppingRule,
    pub(super) way: StepMode,
    /// Highest position known to be accepted.
    pub(super) floor: usize,
    pub(super) test: Sprt,
    /// Attempts failed and accepted at this cap before.
    pub(super) prior: (usize, usize),
    /// Objectives for the time to first token and between tokens, in seconds.
    pub(super) objective: (Option<f64>, Option<f64>),
}

#[derive(Debug)]
pub(super) struct StepMonitor {
    pub(super) task: StepTask,
    pub(super) began: f64,
    ready: Option<f64>,
    last: Option<LoadSample>,
    /// Seconds since the step was ready, and slot-seconds held since.
    span: f64,
    occupied: f64,
    gap: f64,
    forbidden: f64,
    lagging: f64,
    /// Sum and count of the CPU usage samples.
    busy: (f64, usize),
    rates: BTreeMap<&'static str, f64>,
    marks: Vec<AttemptMark>,
    above_floor: (usize, usize),
    all: (usize, usize),
    refused: usize,
    /// Number of 429s.
    limited: usize,
    first_limited: Option<f64>,
    /// Time since which the cap is full, and attempts that ended well from then until the first
    /// 429, whose slots were reused.
    full: Option<f64>,
    turned_over: usize,
    after_asked: bool,
    since_empty: usize,
    failures: BTreeMap<FailureCause, usize>,
    hints: Vec<LimitHint>,
    last_failure: Option<AttemptFailure>,
    warm_up: usize,
    ended: usize,
    calls: Vec<CallObservation>,
    samples: Vec<Sample>,
    /// All calls that ended since the step was ready, whenever they began.
    completed: ServiceTime,
    met: usize,
    answered: usize,
    preemptions: (Option<u64>, Option<u64>),
}

impl StepMonitor {
    pub(super) fn new(task: StepTask, began: f64) -> Self {
        Self {
            task,
            began,
            ready: None,
            last: None,
            span: 0.0,
            occupied: 0.0,
            gap: 0.0,
            forbidden: 0.0,
            lagging: 0.0,
            busy: (0.0, 0),
            rates: BTreeMap::new(),
            marks: Vec::new(),
            above_floor: (0, 0),
            all: (0, 0),
            refused: 0,
            limited: 0,
            first_limited: None,
            full: None,
            turned_over: 0,
            after_asked: false,
            since_empty: 0,
            failures: BTreeMap::new(),
            hints: Vec::new(),
            last_failure: None,
            warm_up: 0,
            ended: 0,
            calls: Vec::new(),
            samples: Vec::new(),
            completed: ServiceTime::default(),
            met: 0,
            answered: 0,
            preemptions: (None, None),
        }
    }

    pub(super) fn attempt(&mut self, seen: &AttemptObservation) {
        if seen.failure.is_none() && self.first_limited.is_none() && self.full.is_some() {
            self.turned_over += 1;
        }
        if seen.sent_at < self.began {
            return;
        }
        let failed = match &seen.failure {
            Some(failure) => {
                *self.failures.entry(failure.cause).or_default() += 1;
                self.last_failure = Some(failure.clone());
                // The request itself is invalid; another request could be accepted.
                if failure.cause == FailureCause::Request {
                    self.refused += 1;
                    return;
                }
                self.hints.extend(failure.hint);
                if failure.cause == FailureCause::Limited {
                    self.limited += 1;
                    self.first_limited.get_or_insert(seen.sent_at);
                    self.after_asked |= failure.retry_after.is_some();
                }
                true
            }
            None => false,
        };
        self.marks.push(AttemptMark { sent_at: seen.sent_at, position: seen.position, failed });
        let count = |tally: &mut (usize, usize)| if failed { tally.0 += 1 } else { tally.1 += 1 };
        count(&mut self.all);
        if seen.position > self.task.floor {
            count(&mut self.above_floor);
        }
    }

    pub(super) fn call(&mut self, seen: &CallObservation) {
        let work = seen.output_tokens as f64;
        if seen.failure.is_none() && self.ready.is_some_and(|ready| seen.ended_at > ready) {
            self.completed.add(work, seen.slot_seconds);
        }
        if seen.step != self.task.step {
            return;
        }
        self.ended += 1;
        self.since_empty += usize::from(self.is_empty());
        // A client that never fills the cap is evaluated from the end of its first calls.
        if self.ready.is_none() {
            let held = self.last.map_or(0, |pulse| pulse.in_flight);
            if self.ended >= held.max(4) {
                self.ready = Some(seen.ended_at);
            }
        }
        if self.ready.is_none_or(|ready| seen.admitted_at <= ready) {
            self.warm_up += 1;
            return;
        }
        if seen.failure.is_none() {
            let took = seen.ended_at - seen.admitted_at;
            self.samples.push(Sample { work, seconds: seen.slot_seconds, took });
            self.answered += 1;
            let meets = |bound: Option<f64>, value: Option<f64>| match (bound, value) {
                (Some(bound), Some(value)) => value <= bound,
                (Some(_), None) => false,
                (None, _) => true,
            };
            let (ttft, tpot) = self.task.objective;
            // A call with one token has no time between tokens.
            let met = meets(ttft, seen.ttft) && (seen.output_tokens <= 1 || meets(tpot, seen.tpot));
            self.met += usize::from(met);
        }
        self.calls.push(seen.clone());
    }

    pub(super) fn pulse(&mut self, pulse: &LoadSample) {
        if pulse.at < self.began || pulse.cap != self.task.cap {
            return;
        }
        if let (Some(last), Some(ready)) = (self.last, self.ready) {
            let passed = (pulse.at - last.at.max(ready)).max(0.0);
            self.span += passed;
            self.occupied += passed * last.in_flight.min(self.task.cap) as f64;
            if last.in_flight < self.task.cap {
                match last.held_by {
                    Some(BlockedBy::Requests) => self.forbid("requests", passed),
                    Some(BlockedBy::Tokens) => self.forbid("tokens", passed),
                    Some(BlockedBy::Kv) => self.forbid("kv", passed),
                    Some(BlockedBy::CoolDown) => self.forbid("cool_down", passed),
                    Some(BlockedBy::Nothing) | None => self.gap += passed,
                }
            }
            if last.client_lag > MAX_LAG_S {
                self.lagging += passed;
            }
            if let Some(cpu) = pulse.client_cpu {
                self.busy = (self.busy.0 + cpu, self.busy.1 + 1);
            }
        }
        let fills = pulse.in_flight as f64 >= MIN_HELD_SHARE * self.task.cap as f64
            && pulse.in_flight <= self.task.cap;
        if self.full.is_none() && pulse.in_flight == self.task.cap {
            self.full = Some(pulse.at);
        }
        if self.ready.is_none() && fills {
            self.ready = Some(pulse.at);
        }
        if let Some(thrown_out) = pulse.engine.and_then(|engine| engine.preemptions) {
            self.preemptions.0.get_or_insert(thrown_out);
            self.preemptions.1 = Some(thrown_out);
        }
        self.last = Some(*pulse);
    }

    fn forbid(&mut self, by: &'static str, seconds: f64) {
        self.forbidden += seconds;
        *self.rates.entry(by).or_default() += seconds;
    }

    fn share_of(&self, seconds: f64) -> f64 {
        if self.span > 0.0 { seconds / self.span } else { 0.0 }
    }

    /// Returns the rate that holds calls back, if any. A cool-down does not count.
    fn held_by_rate(&self) -> Option<BlockedBy> {
        let of = |name: &str| self.rates.get(name).copied().unwrap_or_default();
        let (requests, tokens) = (of("requests"), of("tokens"));
        (self.share_of(requests + tokens) > RATE_LIMITED_SHARE && requests + tokens > 1.0)
            .then_some(if requests > tokens { BlockedBy::Requests } else { BlockedBy::Tokens })
    }

    /// Returns `true` if a rate limit has no credit left.
    fn is_empty(&self) -> bool {
        let by_rate = self.rates.get("requests").into_iter().chain(self.rates.get("tokens")).sum::<f64>();
        self.limited >= if self.after_asked { 1 } else { MIN_429S } || by_rate > MIN_HELD_BACK_S
    }

    fn is_rejected(&self) -> bool {
        if self.task.way != StepMode::Plain {
            let (bad, good) = self.all;
            return self.task.way == StepMode::Paced
                && bad >= MIN_429S
                && bad as f64 > MAX_REJECTED_SHARE * (bad + good) as f64
                && bad + good > MIN_REJECTION_ATTEMPTS;
        }
        let held = self.last.filter(|pulse| pulse.cap == self.task.cap).map_or(0, |pulse| pulse.in_flight);
        let (bad, good) = self.above_floor;
        let taken = held.saturating_sub(self.task.floor.min(self.task.cap));
        let (all_bad, all_good) = self.all;
        let test = &self.task.test;
        test.of(bad, good + taken) == ShareVerdict::TooMany
            || test.of(all_bad, all_good + held) == ShareVerdict::TooMany
    }

    fn service(&self) -> ServiceTime {
        ServiceTime::from_window(self.span, self.occupied, &self.samples, &self.completed)
    }

    fn share(&self) -> ShareVerdict {
        let ((bad, good), (bad_before, good_before)) = (self.above_floor, self.task.prior);
        self.task.test.of(bad + bad_before, good + good_before)
    }

    /// Returns `true` if failures are known to be acceptable where required, and otherwise not
    /// known to be too many.
    fn is_fine_enough(&self) -> bool {
        match self.share() {
            ShareVerdict::Fine => true,
            ShareVerdict::Open => !self.task.need.accept,
            ShareVerdict::TooMany => false,
        }
    }

    fn is_client(&self) -> bool {
        let free = self.task.cap as f64 - self.in_flight();
        let slack = free > (1.0 - MIN_HELD_SHARE) * self.task.cap as f64 && free >= 0.5;
        let gap = self.share_of(self.gap);
        let is_busy = self.busy.0 > MAX_CPU * self.busy.1 as f64;
        (slack && gap > CLIENT_SHARE)
            || (free >= 0.5 && gap > SINGLE_SLOT_SHARE)
            || self.share_of(self.lagging) > CLIENT_SHARE
            || is_busy
    }

    pub(super) fn in_flight(&self) -> f64 {
        if self.span > 0.0 { self.occupied / self.span } else { 0.0 }
    }

    /// Returns `true` if the step is complete. `work` is the mean work of the mix.
    pub(super) fn is_settled(&self, work: f64) -> bool {
        if self.is_rejected() || self.marks.len() >= MAX_ATTEMPTS {
            return true;
        }
        if self.refused >= MIN_REJECTED_REQUESTS && self.answered == 0 {
            return true;
        }
        match self.task.way {
            StepMode::Drain { calls } => {
                return (self.is_empty() && self.since_empty >= calls) || self.ended >= MAX_DRAIN_CALLS;
            }
            StepMode::Plain if self.held_by_rate().is_some() => return true,
            StepMode::Plain | StepMode::Paced => {}
        }
        let need = &self.task.need;
        if self.calls.len() < need.calls {
            return false;
        }
        // Failures keep the step open until the test decides.
        let told = need.accept || (self.above_floor.0 > 0 && self.calls.len() < need.most);
        if self.task.way == StepMode::Plain && told && self.share() == ShareVerdict::Open && !self.is_client()
        {
            return false;
        }
        let service = self.service();
        let Some(mean) = service.at(work) else { return self.calls.len() >= need.most };
        // If the work does not predict the duration of a call, completions are counted, over more
        // than one wave.
        let window = if service.is_regular() { 0.0 } else { WINDOW_CALL_TIMES * mean.value };
        self.span >= window && (mean.relative() <= need.error || self.calls.len() >= need.most)
    }
}
