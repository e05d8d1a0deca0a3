//! Decides which step comes next. Its only input is the summary of each completed step.
//!
//! 1. **Ramp**: double the cap until too many attempts fail, the goodput stops rising, or this
//!    client does not keep the cap in use.
//! 2. **Narrow**: measure between the highest usable and the lowest unusable cap, first where the
//!    positions of the failures indicate, then at the geometric mean. If the goodput stops rising
//!    clearly below the highest usable cap, measure at the knee of the curve instead. If no call
//!    met an objective yet, halve the cap.
//! 3. **Confirm**: measure the answer and a cap above it, twice each, alternating. If the cap above
//!    is accepted and better, the search continues upwards. If the answer is rejected, the search
//!    continues downwards. If the engine has a queue, a cap below is measured instead.
//!
//! After a rejection, a rest or a reference step shows whether the overload affects later caps. If
//! caps fail that were usable before, the rests become longer. If the caps still fail, the server
//! has changed, and a new era begins.

use std::collections::VecDeque;

use super::SearchSettings;
use super::evidence::{Evidence, RejectedCap, RejectionCause};
use super::knee::{NEAR, RESOLUTION};
use super::rate_limited::RateLimited;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_stopping_rules::{ACCEPT, CONFIRM_ANSWER, MEASURE, RAMP, REFERENCE};
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::LimitHint;
use crate::search_result::{FULL_USE_SHARE, Purpose};

/// Maximum number of times that the search measures caps again because their goodputs contradict
/// each other.
const MAX_REFERENCES: usize = 4;
/// Maximum number of steps that only locate the knee.
pub(super) const MAX_KNEE_STEPS: usize = 5;
/// Maximum distance, in steps, between two steps that used up the credit of a rate limit for the
/// search to conclude that a rate limit applies.
const MAX_EXHAUSTION_DISTANCE: usize = 6;
/// Number of calls since the sweep began after which no step is made only to locate the knee, and
/// the search ends even if its confirmation changed the answer.
pub(super) const SUFFICIENT_CALLS: usize = 2_000;
/// Number of calls since the sweep began, plus `MAX_CALLS_PER_SLOT` for each slot of the highest
/// usable cap, after which the search ends because the server is not stable.
const MAX_CALLS: usize = 4_000;
/// Number of calls for each slot of the highest usable cap that is added to `MAX_CALLS`.
const MAX_CALLS_PER_SLOT: usize = 20;
/// Number of calls without which no step is started.
const MIN_STEP_CALLS: usize = 16;
/// Maximum number of times that the search starts again because a later step contradicts its
/// result.
pub(super) const MAX_ROUNDS: usize = 6;

/// The decision of the policy about the next step: measure a cap, or send nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NextStep {
    Measure { cap: usize, purpose: Purpose, stopping_rule: StoppingRule, mode: StepMode },
    Rest { seconds: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    Ramp,
    Narrow,
    Confirm {
        at: usize,
        answer: usize,
        above: Option<usize>,
        /// Number of steps that had been completed before the steps that confirm the answer.
        since: usize,
    },
    /// The server has a rate limit, which determines the following steps.
    RateLimited(RateLimited),
    Done,
}

/// Why the search ended without an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoAnswer {
    /// Calls fail even at the lowest cap.
    Fails,
    /// The server rejects the requests themselves (4xx), whatever the cap.
    Refused,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) phase: Phase,
    pub(super) queue: VecDeque<NextStep>,
    pub(super) evidence: Evidence,
    /// Number of consecutive rejections of caps that should have been usable.
    pub(super) unexpected_failures: usize,
    /// Highest cap that still counted as usable after the last rejection, or `None` after an
    /// accepted step. A rejection at or below this cap is unexpected.
    pub(super) expected: Option<usize>,
    /// First usable cap that failed and whose failure is not explained yet. `None` if there is
    /// none.
    pub(super) unexpected_failure: Option<usize>,
    /// Number of consecutive rests made because calls were slower than in earlier steps at the same
    /// cap.
    pub(super) slow_rests: usize,
    /// Number of rests made because even the lowest cap was rejected.
    pub(super) idle_rests: usize,
    /// Whether the search has checked once whether a usable cap still works just after a rejected
    /// step.
    pub(super) overload_effect_measured: bool,
    /// Number of times so far that caps were measured again because their goodputs contradict each
    /// other.
    pub(super) references: usize,
    /// Cap whose last step contradicted other evidence and which is measured again. `None` if there
    /// is none.
    pub(super) contradicting: Option<usize>,
    /// Last step at `contradicting` that contradicted earlier steps at the same cap. `None` if
    /// there is none.
    pub(super) contradiction: Option<StepSummary>,
    /// Number of steps that are not counted, because they disagree with repeated steps.
    pub(super) outliers: usize,
    /// Time in seconds for which the server remains slow or rejects calls after an overload. `None`
    /// if no such effect is known.
    pub(super) overload_seconds: Option<f64>,
    pub(super) knee_steps: usize,
    pub(super) rounds: usize,
    /// Last increase of the cap, in slots, in a ramp that began again because a rejected cap turned
    /// out to be usable. The next increase is at most twice as large. `None` in other ramps, which
    /// double the cap.
    pub(super) stride: Option<usize>,
    /// Cap of the previous step, or 0 after a rest.
    pub(super) last_cap: usize,
    /// Maximum increase of the cap per step in slots, or `None` without a limit. Set if the server
    /// accepts a higher cap only after a slow increase of the load.
    pub(super) max_rise: Option<usize>,
    /// Number of times that the rejection of a cap was retracted, because a slower increase of the
    /// load was accepted.
    pub(super) retracted_rejections: usize,
    /// Lowest cap that was rejected only because the load rose too quickly, or `None` if there is
    /// none.
    pub(super) too_fast_rejection: Option<usize>,
    /// Cap at which the goodput fell below that of a lower cap, while it is unknown whether the
    /// server remains slow. `None` otherwise.
    pub(super) dropped_cap: Option<usize>,
    /// Whether a reference step has shown that a fall of the goodput has no lasting effect.
    pub(super) drop_was_harmless: bool,
    pub(super) confirmed: bool,
    pub(super) no_answer: Option<NoAnswer>,
    pub(super) notes: Vec<String>,
    pub(super) ended: bool,
}

impl Policy {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Ramp,
            queue: VecDeque::new(),
            evidence: Evidence::default(),
            unexpected_failures: 0,
            expected: None,
            unexpected_failure: None,
            slow_rests: 0,
            idle_rests: 0,
            overload_effect_measured: false,
            references: 0,
            contradicting: None,
            contradiction: None,
            outliers: 0,
            overload_seconds: None,
            knee_steps: 0,
            rounds: 0,
            stride: None,
            last_cap: 0,
            max_rise: None,
            retracted_rejections: 0,
            too_fast_rejection: None,
            dropped_cap: None,
            drop_was_harmless: false,
            confirmed: false,
            no_answer: None,
            notes: Vec::new(),
            ended: false,
        }
    }

    /// Returns the next decision, or `None` if the search is done.
    /// `max_calls` is the maximum number of calls of the whole sweep.
    pub(super) fn next(&mut self, settings: &SearchSettings, max_calls: usize) -> Option<NextStep> {
        let next = self.choose(settings)?;
        // A step needs at least its calls, and refills its slots once.
        let needed = match next {
            NextStep::Measure { cap, stopping_rule, .. } => stopping_rule.calls.min(MIN_STEP_CALLS) + cap,
            NextStep::Rest { .. } => 0,
        };
        if self.evidence.sent + needed > max_calls {
            self.confirmed = false;
            self.notes.push(format!(
                "The sweep used the {max_calls} calls that its plan allows before its measurements agreed; the answer is not confirmed."
            ));
            self.end();
            return None;
        }
        Some(next)
    }

    fn choose(&mut self, settings: &SearchSettings) -> Option<NextStep> {
        if self.evidence.calls >= MAX_CALLS + MAX_CALLS_PER_SLOT * self.evidence.good.unwrap_or(0)
            && !self.ended
        {
            self.confirmed = false;
            self.notes
                .push("The server's behaviour did not become stable; the answer is not confirmed.".into());
            self.end();
            return None;
        }
        // Each phase without work moves to the next phase, so a few iterations suffice.
        for _ in 0..16 {
            if let Some(step) = self.queue.pop_front() {
                return Some(self.limit_rise(step));
            }
            match self.phase {
                Phase::Ramp => self.ramp(settings),
                Phase::Narrow => self.narrow(settings),
                Phase::Confirm { .. } => self.confirm(settings),
                Phase::RateLimited(_) => self.queue_rate_limited_step(settings),
                Phase::Done => return None,
            }
            if self.ended {
                return None;
            }
        }
        self.phase = Phase::Done;
        None
    }

    pub(super) fn push_plain_step(&mut self, cap: usize, purpose: Purpose, stopping_rule: StoppingRule) {
        self.push_step(cap, purpose, stopping_rule, StepMode::Plain);
    }

    pub(super) fn push_step(
        &mut self,
        cap: usize,
        purpose: Purpose,
        stopping_rule: StoppingRule,
        mode: StepMode,
    ) {
        self.queue.push_back(NextStep::Measure { cap, purpose, stopping_rule, mode });
    }

    /// Returns `step` if it raises the cap by at most [`Policy::max_rise`]. Otherwise returns a
    /// step that raises the cap by that amount, and puts `step` at the front of the queue.
    fn limit_rise(&mut self, step: NextStep) -> NextStep {
        let next = match (step, self.max_rise.map(|max_rise| self.last_cap + max_rise)) {
            (NextStep::Measure { cap: wanted, .. }, Some(cap)) if wanted > cap => {
                self.queue.push_front(step);
                NextStep::Measure {
                    cap,
                    purpose: Purpose::Ramp,
                    stopping_rule: REFERENCE,
                    mode: StepMode::Plain,
                }
            }
            _ => step,
        };
        self.last_cap = match next {
            NextStep::Measure { cap, .. } => cap,
            NextStep::Rest { .. } => 0,
        };
        next
    }

    /// Ends the search. The search phase is kept, because the answer is computed from it.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn push_rest(&mut self, seconds: f64) {
        self.queue.push_back(NextStep::Rest { seconds });
    }

    fn ramp(&mut self, settings: &SearchSettings) {
        let Some(good) = self.evidence.good else {
            match self.evidence.bad {
                None => self.push_plain_step(
                    settings.start.clamp(settings.min_cap, settings.max_cap),
                    Purpose::Ramp,
                    RAMP,
                ),
                Some(_) => self.phase = Phase::Narrow,
            }
            return;
        };
        if self.evidence.is_always_late() {
            self.phase = Phase::Narrow;
            return;
        }
        let stride = self.stride.map_or(good, |stride| (2 * stride).min(good));
        let stride = stride.min(self.max_rise.unwrap_or(stride));
        let next = (good + stride.max(1)).min(settings.max_cap);
        if self.evidence.highest_useful_cap().is_some_and(|highest| highest < next) {
            self.phase = Phase::Narrow;
            return;
        }
        if self.evidence.bad.is_some_and(|bad| bad.cap <= next) || good >= settings.max_cap {
            self.phase = Phase::Narrow;
            return;
        }
        if self.evidence.is_past_peak(settings) {
            if self.evidence.is_idle_engine_slow(good) {
                self.push_plain_step(good, Purpose::Reference, RAMP);
            } else {
                self.phase = Phase::Narrow;
            }
            return;
        }
        let next = if self.evidence.is_flattening() { next.min(good + good.div_ceil(2)) } else { next };
        if self.stride.is_some() {
            self.stride = Some(stride.max(1));
        }
        self.push_plain_step(next, Purpose::Ramp, RAMP);
    }

    fn narrow(&mut self, settings: &SearchSettings) {
        let Some(good) = self.evidence.good else { return self.lower_cap(settings) };
        if self.evidence.is_always_late() {
            // Higher caps are slower, so only a lower one can meet the objectives.
            let lowest = self.evidence.summaries().iter().map(|summary| summary.cap).min().unwrap_or(good);
            if lowest > settings.min_cap {
                self.push_plain_step((lowest / 2).max(settings.min_cap), Purpose::Narrow, ACCEPT);
            } else {
                self.phase = Phase::Done;
            }
            return;
        }
        if self.knee_steps < MAX_KNEE_STEPS
            && self.evidence.engine_queue().is_none()
            && let Some(cap) = self.evidence.below_cliff()
        {
            self.knee_steps += 1;
            self.push_plain_step(cap, Purpose::Narrow, ACCEPT);
            return;
        }
        let knee = self.evidence.knee(settings);
        let rises = knee.is_none_or(|knee| knee.cap as f64 >= 0.8 * good as f64);
        if let Some(bad) = self.evidence.bad.filter(|_| rises) {
            let gap = bad.cap.saturating_sub(good);
            // A cliff is not a sharp edge: gains and losses cancel out somewhere near it.
            let resolution = if bad.cause == RejectionCause::Cliff { NEAR } else { RESOLUTION };
            if gap > ((resolution * good as f64) as usize).max(1) {
                let middle =
                    ((good as f64 * bad.cap as f64).sqrt().round() as usize).clamp(good + 1, bad.cap - 1);
                let guess = bad.guess.filter(|guess| (good + 1..bad.cap).contains(guess));
                // A guess is tried once, and then the cap just above it.
                if let Some(bad) = &mut self.evidence.bad {
                    let next = guess
                        .filter(|_| bad.try_next && self.unexpected_failures == 0)
                        .map(|guess| guess + 1);
                    bad.guess = next.filter(|&next| next < bad.cap);
                    bad.try_next &= guess.is_none();
                }
                self.push_plain_step(guess.unwrap_or(middle), Purpose::Narrow, ACCEPT);
                return;
            }
        }
        let more = good.div_ceil(4).min(self.max_rise.unwrap_or(good));
        let next = (good + more.max(1)).min(settings.max_cap);
        if self.evidence.bad.is_none()
            && good < settings.max_cap
            && self.evidence.highest_useful_cap().is_none_or(|highest| next <= highest)
            && self.evidence.calls < SUFFICIENT_CALLS
            && (!self.evidence.has_stopped_rising(settings) || self.evidence.may_hide_a_rise(good))
        {
            // The curve seemed to bend, but with more points it does not.
            self.push_plain_step(next, Purpose::Ramp, RAMP);
            return;
        }
        if let Some(queue) = self.evidence.engine_queue()
            && self.knee_steps < MAX_KNEE_STEPS
            && self.evidence.pooled(queue.running).is_none()
            && queue.running >= settings.min_cap
        {
            self.knee_steps += 1;
            self.push_plain_step(queue.running, Purpose::Narrow, MEASURE);
            return;
        }
        if self.knee_steps < MAX_KNEE_STEPS
            && self.evidence.calls < SUFFICIENT_CALLS
            && let Some(cap) = self.evidence.next_knee_cap(settings, good)
        {
            self.knee_steps += 1;
            self.push_plain_step(cap, Purpose::Narrow, MEASURE);
            return;
        }
        let Some(answer) = self.evidence.answer(settings) else {
            self.phase = Phase::Done;
            return;
        };
        // If the answer was measured last, that step counts as its first confirmation.
        let last = self
            .evidence
            .summaries()
            .last()
            .filter(|summary| summary.cap == answer && summary.ended == StepEnd::Accepted);
        let at = usize::from(last.is_some_and(|summary| summary.service.count() >= CONFIRM_ANSWER.calls / 2));
        let since = self.evidence.all_summaries().len() - at;
        let above = self.evidence.confirmation_cap(settings, answer);
        self.phase = Phase::Confirm { at, answer, above, since };
    }

    /// Updates the evidence and the phase with the summary of a completed step.
    pub(super) fn on_step(&mut self, settings: &SearchSettings, summary: StepSummary) {
        if summary.mode != StepMode::Plain {
            self.on_rate_limited_step(settings, &summary, summary.mode != StepMode::Paced);
            self.evidence.push_summary(summary);
            return;
        }
        if let Some(since) = self.rate_limited_since(&summary) {
            self.queue.clear();
            self.phase = Phase::RateLimited(RateLimited::new(&summary, since));
            self.evidence.push_summary(summary);
            return;
        }
        let (cap, ended) = (summary.cap, summary.ended);
        let edge = summary.edge;
        let in_flight = summary.in_flight;
        let is_refused = summary.answered == 0 && summary.attempts == 0;
        let refusal = summary.failure.as_ref().filter(|_| is_refused).map(|failure| failure.status);
        if ended == StepEnd::Accepted && !self.check_consistency(settings, &summary) {
            return;
        }
        let may_measure_again = ended == StepEnd::Accepted && self.references < MAX_REFERENCES;
        let contradicted = if may_measure_again { self.evidence.contradicting_cap(&summary) } else { None };
        if let Some(other) = contradicted
            && self.record_contradiction(cap)
        {
            self.references += 1;
            self.measure_again(cap, ACCEPT);
            self.measure_again(other, REFERENCE);
            return;
        }
        if ended != StepEnd::Client {
            self.contradicting = self.contradicting.filter(|&odd| odd != cap);
        }
        self.evidence.push_summary(summary);
        if ended == StepEnd::Accepted {
            self.check_goodput_drop(cap);
            if self.check_overload(cap) || self.check_cliff(settings, cap) {
                return;
            }
        }
        match ended {
            StepEnd::Accepted => {
                self.expected = None;
                self.on_accepted_again(cap);
                self.clear_refuted_rejection(cap);
                self.evidence.good = self.evidence.good.max(Some(cap));
                if let Some(bad) = self.evidence.bad.filter(|bad| bad.cap <= cap) {
                    // The limit is gone, or never existed.
                    self.evidence.bad = None;
                    self.stride = Some(cap.saturating_sub(bad.cap).max(1));
                    self.knee_steps = 0;
                    self.rounds += 1;
                    self.phase = if self.rounds > MAX_ROUNDS { Phase::Narrow } else { Phase::Ramp };
                }
            }
            StepEnd::Rejected => self.on_rejected(cap, edge),
            StepEnd::Client => {
                // The slots were in use, but this client was late: it may have been slowed only
                // then.
                if in_flight >= FULL_USE_SHARE * cap as f64 && self.record_contradiction(cap) {
                    self.outliers += 1;
                    self.measure_again(cap, REFERENCE);
                    return;
                }
                let held = in_flight.floor() as usize;
                let guess = Some(held.clamp(1, cap.saturating_sub(1).max(1)));
                if self.evidence.good.is_none_or(|good| good < cap) {
                    self.evidence.bad = Some(RejectedCap::new(cap, RejectionCause::Client, guess));
                }
            }
            StepEnd::Rate | StepEnd::Undecided => {
                if let Some(status) = refusal {
                    self.no_answer = Some(NoAnswer::Refused);
                    self.phase = Phase::Done;
                    if self.evidence.good.is_some() {
                        let status = status.map_or_else(String::new, |status| format!(" with a {status}"));
                        self.notes.push(format!(
                            "The server rejected the requests at cap {cap}{status}, so the search ended; the answer is not confirmed."
                        ));
                    }
                } else if self.evidence.good.is_none_or(|good| good < cap) {
                    self.evidence.bad = Some(RejectedCap::new(cap, RejectionCause::Failures, None));
                }
            }
        }
    }

    /// Returns the time, in seconds since the sweep began, from which a rate limit applies, or
    /// `None` if none applies. A rate limit applies if the gate kept calls waiting because of it in
    /// the step `summary`, if the server named it, or if two steps used up its credit.
    fn rate_limited_since(&self, summary: &StepSummary) -> Option<f64> {
        let credit_exhausted_at = |summary: &StepSummary| {
            summary.ended == StepEnd::Rejected && summary.credit_exhausted_at.is_some()
        };
        match summary.ended {
            StepEnd::Rate => Some(summary.began),
            StepEnd::Rejected if matches!(summary.hint, Some(LimitHint::Requests | LimitHint::Tokens)) => {
                Some(summary.began)
            }
            StepEnd::Rejected if credit_exhausted_at(summary) => {
                let before = self
                    .evidence
                    .all_summaries()
                    .iter()
                    .rev()
                    .take(MAX_EXHAUSTION_DISTANCE)
                    .find(|summary| credit_exhausted_at(summary))?;
                before.credit_exhausted_at
            }
            _ => None,
        }
    }
}
