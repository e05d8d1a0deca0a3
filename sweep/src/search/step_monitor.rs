//! Collects the observations of the current step, and decides when the step is complete.
//!
//! - A step is evaluated by the attempts *sent* in it, and by the calls *admitted* in it after the
//!   cap was first in full use. Earlier ones ran under another load.
//! - Failures are known before successes, because a rejected attempt ends at once and an accepted
//!   one much later. Open exchanges therefore count as accepted when the step may be rejected, but
//!   not when it may be accepted.
//! - A step ends at once when it is rejected. It is accepted only when the throughput is known as
//!   precisely as its [`StoppingRule`] requires.

mod results;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::failure_positions::AttemptMark;
use super::service_time::{Sample, ServiceTime};
use super::sprt::{ShareVerdict, Sprt};
use crate::observation::{
    AttemptFailure, AttemptObservation, BlockedBy, CallObservation, EngineObservation, FailureCause,
    LimitHint, LoadSample,
};
use crate::search_result::{FULL_USE_SHARE, Purpose};

/// Time in seconds for which the engine's metrics may describe the load before a change of the cap.
const METRICS_LAG_S: f64 = 1.0;
/// Mean CPU usage of this process, 0 to 1, above which a step is invalid, because this client may
/// be too slow for the cap.
const MAX_CPU: f64 = 0.93;
/// Timer delay in seconds above which this client may be too slow for the cap.
const MAX_LAG_S: f64 = 0.1;
/// A step is invalid if timers are late for more than this share of its time. It is also invalid if
/// slots are free for more than this share although nothing limits the calls, and on average more
/// than 5 % of the cap is free.
const CLIENT_SHARE: f64 = 0.2;
/// A step is invalid if slots are free for more than this share of its time although nothing limits
/// the calls, and on average at least half a slot is free.
const SINGLE_SLOT_SHARE: f64 = 0.5;
/// A step is rate limited if a rate limit keeps slots free for more than this share of its time.
const RATE_LIMITED_SHARE: f64 = 0.1;
/// Minimum length of a step, in mean call times, if the output length does not predict the duration
/// of a call.
const WINDOW_CALL_TIMES: f64 = 2.0;
/// Number of 429s in a step that show that a rate limit has no credit left. If one of them has a
/// Retry-After header, a single 429 suffices.
const MIN_429S: usize = 3;
/// A rate limit has no credit left if the gate keeps calls waiting because of it for more than this
/// time, in seconds.
const MIN_HELD_BACK_S: f64 = 1.0;
/// Minimum number of answered calls for the throughput of a step to be reported.
const MIN_REPORTED_CALLS: usize = 8;
/// Number of calls after which a drain step ends even without a rate limit.
const MAX_DRAIN_CALLS: usize = 300;
/// A [`StepMode::Paced`] step, whose cap a rate limit should sustain, is rejected if more than this
/// share of its attempts and at least [`MIN_429S`] of them fail.
const MAX_REJECTED_SHARE: f64 = 0.3;
/// A [`StepMode::Paced`] step is rejected only if more attempts than this number have ended.
const MIN_REJECTION_ATTEMPTS: usize = 10;
/// Number of attempts that must have been accepted since all slots were first in use for a later
/// 429 to show that the credit of a rate limit was used up.
const MIN_ACCEPTED_AFTER_FILL: usize = 5;
/// Number of ended attempts at which a step ends even if it is undecided.
const MAX_ATTEMPTS: usize = 800;
/// Number of attempts that the server rejected as invalid requests (4xx other than 429) at which a
/// step without an answered call ends.
const MIN_REJECTED_REQUESTS: usize = 12;

/// Conditions under which a step ends, unless it is rejected before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StoppingRule {
    /// Minimum number of evaluated calls that have ended.
    pub(super) calls: usize,
    /// Maximum relative standard error of the mean service time.
    pub(super) error: f64,
    /// Number of evaluated calls at which the step ends even if the standard error is larger than
    /// `error`.
    pub(super) most: usize,
    /// Whether the step continues until the sequential test has decided whether the share of failed
    /// attempts is acceptable.
    pub(super) accept: bool,
}

/// The purpose of a step, which determines how it is evaluated and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepMode {
    /// Determines whether the cap is usable, and its throughput.
    Plain,
    /// Uses up the saved credit of a rate limit. The step ends when no credit is left and `calls`
    /// more calls have ended.
    Drain { calls: usize },
    /// Runs at a cap that a rate limit should sustain. Tolerates a small share of rejected
    /// attempts.
    Paced,
}

/// A step that the policy requests: the cap, how the step is evaluated, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepTask {
    pub(super) step: usize,
    pub(super) cap: usize,
    pub(super) purpose: Purpose,
    pub(super) stopping_rule: StoppingRule,
    pub(super) mode: StepMode,
    /// Highest position (number of open exchanges just after an attempt was sent) that is known to
    /// be accepted, or 0 if none is known. Attempts up to this position say nothing about this cap.
    pub(super) floor: usize,
    pub(super) test: Sprt,
    /// Numbers of failed and of successful attempts in earlier steps at this cap. The test that
    /// decides whether this step is accepted also counts them.
    pub(super) prior_attempts: (usize, usize),
    /// Latency objectives in seconds: for the time to first token, and for the mean time between
    /// tokens. `None`: no objective.
    pub(super) objective: (Option<f64>, Option<f64>),
}

#[derive(Debug)]
pub(super) struct StepMonitor {
    pub(super) task: StepTask,
    pub(super) began: f64,
    /// Time from which calls are evaluated, in seconds since the sweep began. `None` during the
    /// warm-up.
    evaluated_from: Option<f64>,
    last: Option<LoadSample>,
    /// Time for which the step has been evaluated so far, in seconds.
    evaluated_seconds: f64,
    /// Integral of the number of slots in use since `evaluated_from`, in slot-seconds.
    slot_seconds_held: f64,
    /// Seconds since `evaluated_from` in which slots were free although nothing limited the calls.
    gap: f64,
    /// Seconds since `evaluated_from` in which a rate limit, a cool-down or the limit on KV-cache
    /// memory kept slots free.
    forbidden: f64,
    /// Seconds since `evaluated_from` in which timers were late by more than [`MAX_LAG_S`].
    lagging: f64,
    /// Sum of the CPU usage samples (shares from 0 to 1), and their number.
    cpu_samples: (f64, usize),
    blocked_seconds: BTreeMap<&'static str, f64>,
    marks: Vec<AttemptMark>,
    above_floor: (usize, usize),
    attempt_counts: (usize, usize),
    rejected_requests: usize,
    /// Number of attempts that ended with a 429.
    count_429: usize,
    first_429_at: Option<f64>,
    /// Time at which all slots of the cap were first in use, in seconds since the sweep began.
    /// `None` before that.
    filled_at: Option<f64>,
    /// Number of attempts that were answered completely after `filled_at` and before the first 429.
    accepted_after_fill: usize,
    saw_retry_after: bool,
    calls_since_exhaustion: usize,
    failures: BTreeMap<FailureCause, usize>,
    hints: Vec<LimitHint>,
    last_failure: Option<AttemptFailure>,
    warm_up: usize,
    ended: usize,
    calls: Vec<CallObservation>,
    samples: Vec<Sample>,
    /// Sums over all calls that ended since `evaluated_from`, whenever they started.
    completed: ServiceTime,
    within_objective: usize,
    answered: usize,
    preemptions: (Option<u64>, Option<u64>),
    /// Engine metrics at each load sample, from [`METRICS_LAG_S`] after `evaluated_from` on.
    engine: Vec<EngineObservation>,
}

impl StepMonitor {
    pub(super) fn new(task: StepTask, began: f64) -> Self {
        Self {
            task,
            began,
            evaluated_from: None,
            last: None,
            evaluated_seconds: 0.0,
            slot_seconds_held: 0.0,
            gap: 0.0,
            forbidden: 0.0,
            lagging: 0.0,
            cpu_samples: (0.0, 0),
            blocked_seconds: BTreeMap::new(),
            marks: Vec::new(),
            above_floor: (0, 0),
            attempt_counts: (0, 0),
            rejected_requests: 0,
            count_429: 0,
            first_429_at: None,
            filled_at: None,
            accepted_after_fill: 0,
            saw_retry_after: false,
            calls_since_exhaustion: 0,
            failures: BTreeMap::new(),
            hints: Vec::new(),
            last_failure: None,
            warm_up: 0,
            ended: 0,
            calls: Vec::new(),
            samples: Vec::new(),
            completed: ServiceTime::default(),
            within_objective: 0,
            answered: 0,
            preemptions: (None, None),
            engine: Vec::new(),
        }
    }

    pub(super) fn on_attempt(&mut self, seen: &AttemptObservation) {
        if seen.failure.is_none() && self.first_429_at.is_none() && self.filled_at.is_some() {
            self.accepted_after_fill += 1;
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
                    self.rejected_requests += 1;
                    return;
                }
                self.hints.extend(failure.hint);
                if failure.cause == FailureCause::Limited {
                    self.count_429 += 1;
                    self.first_429_at.get_or_insert(seen.sent_at);
                    self.saw_retry_after |= failure.retry_after.is_some();
                }
                true
            }
            None => false,
        };
        self.marks.push(AttemptMark { sent_at: seen.sent_at, position: seen.position, failed });
        let count = |tally: &mut (usize, usize)| if failed { tally.0 += 1 } else { tally.1 += 1 };
        count(&mut self.attempt_counts);
        if seen.position > self.task.floor {
            count(&mut self.above_floor);
        }
    }

    pub(super) fn on_call(&mut self, seen: &CallObservation) {
        let work = seen.output_tokens as f64;
        if seen.failure.is_none()
            && self.evaluated_from.is_some_and(|evaluated_from| seen.ended_at > evaluated_from)
        {
            self.completed.add(work, seen.slot_seconds);
        }
        if seen.step != self.task.step {
            return;
        }
        self.ended += 1;
        self.calls_since_exhaustion += usize::from(self.is_credit_exhausted());
        // A client that never fills the cap is evaluated from the end of its first calls.
        if self.evaluated_from.is_none() {
            let held = self.last.map_or(0, |sample| sample.in_flight);
            if self.ended >= held.max(4) {
                self.evaluated_from = Some(seen.ended_at);
            }
        }
        if self.evaluated_from.is_none_or(|evaluated_from| seen.admitted_at <= evaluated_from) {
            self.warm_up += 1;
            return;
        }
        if seen.failure.is_none() {
            let duration = seen.ended_at - seen.admitted_at;
            self.samples.push(Sample { work, seconds: seen.slot_seconds, duration });
            self.answered += 1;
            let meets = |bound: Option<f64>, value: Option<f64>| match (bound, value) {
                (Some(bound), Some(value)) => value <= bound,
                (Some(_), None) => false,
                (None, _) => true,
            };
            let (ttft, tpot) = self.task.objective;
            // A call with one token has no time between tokens.
            let met = meets(ttft, seen.ttft) && (seen.output_tokens <= 1 || meets(tpot, seen.tpot));
            self.within_objective += usize::from(met);
        }
        self.calls.push(seen.clone());
    }

    pub(super) fn on_load_sample(&mut self, sample: &LoadSample) {
        if sample.at < self.began || sample.cap != self.task.cap {
            return;
        }
        if let (Some(last), Some(evaluated_from)) = (self.last, self.evaluated_from) {
            let passed = (sample.at - last.at.max(evaluated_from)).max(0.0);
            self.evaluated_seconds += passed;
            self.slot_seconds_held += passed * last.in_flight.min(self.task.cap) as f64;
            if last.in_flight < self.task.cap {
                match last.held_by {
                    Some(BlockedBy::Requests) => self.add_blocked_time("requests", passed),
                    Some(BlockedBy::Tokens) => self.add_blocked_time("tokens", passed),
                    Some(BlockedBy::Kv) => self.add_blocked_time("kv", passed),
                    Some(BlockedBy::CoolDown) => self.add_blocked_time("cool_down", passed),
                    Some(BlockedBy::Nothing) | None => self.gap += passed,
                }
            }
            if last.client_lag > MAX_LAG_S {
                self.lagging += passed;
            }
            if let Some(cpu) = sample.client_cpu {
                self.cpu_samples = (self.cpu_samples.0 + cpu, self.cpu_samples.1 + 1);
            }
            if sample.at >= evaluated_from + METRICS_LAG_S {
                self.engine.extend(sample.engine);
            }
        }
        let fills = sample.in_flight as f64 >= FULL_USE_SHARE * self.task.cap as f64
            && sample.in_flight <= self.task.cap;
        if self.filled_at.is_none() && sample.in_flight == self.task.cap {
            self.filled_at = Some(sample.at);
        }
        if self.evaluated_from.is_none() && fills {
            self.evaluated_from = Some(sample.at);
        }
        // Earlier preemptions belong to the load before the change of the cap.
        let is_current = self.evaluated_from.is_some_and(|from| sample.at >= from + METRICS_LAG_S);
        if let Some(preemptions) = sample.engine.and_then(|engine| engine.preemptions).filter(|_| is_current)
        {
            self.preemptions.0.get_or_insert(preemptions);
            self.preemptions.1 = Some(preemptions);
        }
        self.last = Some(*sample);
    }

    fn add_blocked_time(&mut self, by: &'static str, seconds: f64) {
        self.forbidden += seconds;
        *self.blocked_seconds.entry(by).or_default() += seconds;
    }

    fn share_of(&self, seconds: f64) -> f64 {
        if self.evaluated_seconds > 0.0 { seconds / self.evaluated_seconds } else { 0.0 }
    }

    /// Returns the rate limit (requests or tokens) that kept slots free for longer. Returns `None`
    /// unless rate limits did so for more than [`RATE_LIMITED_SHARE`] of the step and more than 1
    /// s. A cool-down does not count.
    fn limiting_rate(&self) -> Option<BlockedBy> {
        let of = |name: &str| self.blocked_seconds.get(name).copied().unwrap_or_default();
        let (requests, tokens) = (of("requests"), of("tokens"));
        (self.share_of(requests + tokens) > RATE_LIMITED_SHARE && requests + tokens > 1.0)
            .then_some(if requests > tokens { BlockedBy::Requests } else { BlockedBy::Tokens })
    }

    /// Returns `true` if a rate limit has used up its credit in this step: it caused enough 429s
    /// (see [`MIN_429S`]), or the gate kept calls waiting because of it for more than
    /// [`MIN_HELD_BACK_S`].
    fn is_credit_exhausted(&self) -> bool {
        let by_rate = self
            .blocked_seconds
            .get("requests")
            .into_iter()
            .chain(self.blocked_seconds.get("tokens"))
            .sum::<f64>();
        self.count_429 >= if self.saw_retry_after { 1 } else { MIN_429S } || by_rate > MIN_HELD_BACK_S
    }

    fn is_rejected(&self) -> bool {
        if self.task.mode != StepMode::Plain {
            let (failed, accepted) = self.attempt_counts;
            return self.task.mode == StepMode::Paced
                && failed >= MIN_429S
                && failed as f64 > MAX_REJECTED_SHARE * (failed + accepted) as f64
                && failed + accepted > MIN_REJECTION_ATTEMPTS;
        }
        let held =
            self.last.filter(|sample| sample.cap == self.task.cap).map_or(0, |sample| sample.in_flight);
        let (failed, accepted) = self.above_floor;
        let taken = held.saturating_sub(self.task.floor.min(self.task.cap));
        let (all_bad, all_good) = self.attempt_counts;
        let test = &self.task.test;
        test.evaluate(failed, accepted + taken) == ShareVerdict::TooMany
            || test.evaluate(all_bad, all_good + held) == ShareVerdict::TooMany
    }

    fn service(&self) -> ServiceTime {
        ServiceTime::from_window(
            self.evaluated_seconds,
            self.slot_seconds_held,
            &self.samples,
            &self.completed,
        )
    }

    fn share_verdict(&self) -> ShareVerdict {
        let ((failed, accepted), (bad_before, good_before)) = (self.above_floor, self.task.prior_attempts);
        self.task.test.evaluate(failed + bad_before, accepted + good_before)
    }

    /// Returns `true` if the share of failed attempts allows the step to be accepted: the
    /// sequential test has found the share acceptable, or it is undecided and
    /// [`StoppingRule::accept`] is `false`.
    fn is_fine_enough(&self) -> bool {
        match self.share_verdict() {
            ShareVerdict::Fine => true,
            ShareVerdict::Open => !self.task.stopping_rule.accept,
            ShareVerdict::TooMany => false,
        }
    }

    fn is_client_limited(&self) -> bool {
        let free = self.task.cap as f64 - self.in_flight();
        let slack = free > (1.0 - FULL_USE_SHARE) * self.task.cap as f64 && free >= 0.5;
        let gap = self.share_of(self.gap);
        let is_busy = self.cpu_samples.0 > MAX_CPU * self.cpu_samples.1 as f64;
        (slack && gap > CLIENT_SHARE)
            || (free >= 0.5 && gap > SINGLE_SLOT_SHARE)
            || self.share_of(self.lagging) > CLIENT_SHARE
            || is_busy
    }

    pub(super) fn in_flight(&self) -> f64 {
        if self.evaluated_seconds > 0.0 { self.slot_seconds_held / self.evaluated_seconds } else { 0.0 }
    }

    /// Returns `true` if the step needs no further observations. `work` is the mean number of
    /// output tokens per call of the mix.
    pub(super) fn is_settled(&self, work: f64) -> bool {
        if self.is_rejected() || self.marks.len() >= MAX_ATTEMPTS {
            return true;
        }
        if self.rejected_requests >= MIN_REJECTED_REQUESTS && self.answered == 0 {
            return true;
        }
        match self.task.mode {
            StepMode::Drain { calls } => {
                return (self.is_credit_exhausted() && self.calls_since_exhaustion >= calls)
                    || self.ended >= MAX_DRAIN_CALLS;
            }
            StepMode::Plain if self.limiting_rate().is_some() => return true,
            StepMode::Plain | StepMode::Paced => {}
        }
        let stopping_rule = &self.task.stopping_rule;
        if self.calls.len() < stopping_rule.calls {
            return false;
        }
        // Failures keep the step open until the test decides.
        let awaits_verdict =
            stopping_rule.accept || (self.above_floor.0 > 0 && self.calls.len() < stopping_rule.most);
        if self.task.mode == StepMode::Plain
            && awaits_verdict
            && self.share_verdict() == ShareVerdict::Open
            && !self.is_client_limited()
        {
            return false;
        }
        let service = self.service();
        let Some(mean) = service.at(work) else { return self.calls.len() >= stopping_rule.most };
        // If the work does not predict the duration of a call, completions are counted, over more
        // than one wave.
        let window = if service.is_regular() { 0.0 } else { WINDOW_CALL_TIMES * mean.value };
        self.evaluated_seconds >= window
            && (mean.relative() <= stopping_rule.error || self.calls.len() >= stopping_rule.most)
    }
}
