//! Decides which step comes next. Knows no clock and no events; receives the summary of each
//! completed step.
//!
//! 1. **Ramp**: double the cap until too many attempts fail, the goodput stops rising, or the
//!    client does not keep the cap busy.
//! 2. **Narrow**: measure between the highest good cap and the lowest bad cap, first where the
//!    positions of the failures point, otherwise at the geometric mean; or at the knee of the
//!    curve, if the goodput bends before.
//! 3. **Confirm**: measure the answer and the cap above it, twice each. If the cap above no longer
//!    fails, the search continues upwards. If the answer no longer holds, it continues downwards.
//!
//! A rejection is followed by a rest, so that an overload does not affect the next cap. If caps
//! fail that were good, the rests become longer, with a reference step after each. If those fail
//! too, the server has changed, and a new era begins.

use std::collections::VecDeque;

use super::SearchSettings;
use super::evidence::{Evidence, RejectedCap, RejectionCause};
use super::knee::{NEAR, RESOLUTION};
use super::rate_limited::RateLimited;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use super::stopping_rules::{ACCEPT, CONFIRM_ABOVE, CONFIRM_ANSWER, MEASURE, RAMP, REFERENCE};
use crate::observation::LimitHint;
use crate::result::Purpose;

/// Maximum number of reference steps because of points off the curve.
const MAX_REFERENCES: usize = 4;
/// Maximum number of steps to locate the knee.
const MAX_KNEE_STEPS: usize = 5;
/// Maximum distance, in steps, of two steps that used up a rate's credit.
const MAX_SPENT_DISTANCE: usize = 6;
/// Number of calls after which the evidence has to suffice: the knee is no longer refined, and
/// small contradictions no longer overturn a confirmation.
const SUFFICIENT_CALLS: usize = 2_000;
/// Number of calls, in total and per slot of the highest good cap, after which the search ends,
/// because the server is not stable.
const MAX_CALLS: usize = 4_000;
const MAX_CALLS_PER_SLOT: usize = 20;
/// Maximum number of overturned confirmations.
pub(super) const MAX_ROUNDS: usize = 6;

/// An action to carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NextStep {
    Hold { cap: usize, purpose: Purpose, need: StoppingRule, way: StepMode },
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
    },
    /// A rate limit applies.
    RateLimited(RateLimited),
    Done,
}

/// Why the search ended without an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoAnswer {
    /// Calls fail even at the lowest cap.
    Fails,
    /// The requests themselves are rejected.
    Refused,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) phase: Phase,
    pub(super) queue: VecDeque<NextStep>,
    pub(super) evidence: Evidence,
    /// Number of consecutive unexpected failures of caps.
    pub(super) unexpected_failures: usize,
    /// Highest cap that the last rejection left as usable.
    pub(super) expected: Option<usize>,
    /// The first cap that failed unexpectedly, until the reason is known.
    pub(super) unexpected_failure: Option<usize>,
    /// Number of rests after which the server was still slow.
    pub(super) slow_rests: usize,
    /// Number of rests because nothing was accepted any more.
    pub(super) idle_rests: usize,
    /// Whether the effect of the first rejection was measured.
    pub(super) overload_effect_measured: bool,
    /// Number of reference steps because of a point off the curve.
    pub(super) references: usize,
    /// A cap that contradicts other evidence, until it is measured again.
    pub(super) contradicting: Option<usize>,
    /// Duration of an overload in seconds, if the server has such a state.
    pub(super) overload_seconds: Option<f64>,
    pub(super) knee_steps: usize,
    pub(super) rounds: usize,
    /// Size of the last upward step after a rejection turned out to be obsolete.
    pub(super) stride: Option<usize>,
    /// The cap held last, or 0 after a rest.
    pub(super) held: usize,
    /// Maximum rise of the load at once, if the server accepts more only as load grows.
    pub(super) max_rise: Option<usize>,
    /// Number of rejections that were obsolete after a slower rise.
    pub(super) retracted_rejections: usize,
    /// The lowest cap that was rejected only because the load rose too quickly.
    pub(super) too_fast_rejection: Option<usize>,
    /// The cap at which the goodput fell, until it is known whether the server stays slow.
    pub(super) dropped_cap: Option<usize>,
    /// Whether a fall of the goodput had no lasting effect.
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
            overload_seconds: None,
            knee_steps: 0,
            rounds: 0,
            stride: None,
            held: 0,
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

    /// Returns the next action, or `None` if the search is done.
    pub(super) fn next(&mut self, settings: &SearchSettings) -> Option<NextStep> {
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
            if let Some(todo) = self.queue.pop_front() {
                return Some(self.limit_rise(todo));
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

    pub(super) fn push_plain_step(&mut self, cap: usize, purpose: Purpose, need: StoppingRule) {
        self.push_step(cap, purpose, need, StepMode::Plain);
    }

    pub(super) fn push_step(&mut self, cap: usize, purpose: Purpose, need: StoppingRule, way: StepMode) {
        self.queue.push_back(NextStep::Hold { cap, purpose, need, way });
    }

    /// Inserts an intermediate step if the load may only rise by a limited amount.
    fn limit_rise(&mut self, todo: NextStep) -> NextStep {
        let next = match (todo, self.max_rise.map(|max_rise| self.held + max_rise)) {
            (NextStep::Hold { cap: beyond, .. }, Some(cap)) if beyond > cap => {
                self.queue.push_front(todo);
                NextStep::Hold { cap, purpose: Purpose::Ramp, need: REFERENCE, way: StepMode::Plain }
            }
            _ => todo,
        };
        self.held = match next {
            NextStep::Hold { cap, .. } => cap,
            NextStep::Rest { .. } => 0,
        };
        next
    }

    /// Ends the search. The phase remains, because it holds the result.
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
        let stride = self.stride.map_or(good, |stride| (2 * stride).min(good));
        let stride = stride.min(self.max_rise.unwrap_or(stride));
        let next = (good + stride.max(1)).min(settings.max_cap);
        if self.evidence.bad.is_some_and(|bad| bad.cap <= next) || good >= settings.max_cap {
            self.phase = Phase::Narrow;
            return;
        }
        if self.evidence.is_past_peak(settings) {
            self.phase = Phase::Narrow;
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
        if self.knee_steps < MAX_KNEE_STEPS
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
            let resolution = if bad.wall == RejectionCause::Cliff { NEAR } else { RESOLUTION };
            if gap > ((resolution * good as f64) as usize).max(1) {
                let middle =
                    ((good as f64 * bad.cap as f64).sqrt().round() as usize).clamp(good + 1, bad.cap - 1);
                let guess = bad.guess.filter(|guess| (good + 1..bad.cap).contains(guess));
                // A guess is tried once, and then the cap just above it.
                if let Some(bad) = &mut self.evidence.bad {
                    let next =
                        guess.filter(|_| bad.next && self.unexpected_failures == 0).map(|guess| guess + 1);
                    bad.guess = next.filter(|&next| next < bad.cap);
                    bad.next &= guess.is_none();
                }
                self.push_plain_step(guess.unwrap_or(middle), Purpose::Narrow, ACCEPT);
                return;
            }
        }
        if self.evidence.bad.is_none()
            && good < settings.max_cap
            && self.evidence.calls < SUFFICIENT_CALLS
            && !self.evidence.has_stopped_rising(settings)
        {
            // The curve seemed to bend, but with more points it does not.
            let more = good.div_ceil(4).min(self.max_rise.unwrap_or(good));
            self.push_plain_step((good + more.max(1)).min(settings.max_cap), Purpose::Ramp, RAMP);
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
        self.phase = Phase::Confirm { at, answer, above: self.evidence.confirmation_cap(settings, answer) };
    }

    fn confirm(&mut self, settings: &SearchSettings) {
        let Phase::Confirm { at, answer, above } = self.phase else { return };
        if at >= 4 {
            // Check whether the answer is still the same with the additional points.
            let again = self.evidence.answer(settings);
            let same =
                again.is_some_and(|cap| cap.abs_diff(answer) as f64 <= (NEAR * answer as f64).max(0.5));
            if same || self.rounds >= MAX_ROUNDS || self.evidence.calls >= SUFFICIENT_CALLS {
                self.confirmed = same;
                self.phase = Phase::Done;
            } else {
                self.rounds += 1;
                self.knee_steps = self.knee_steps.min(MAX_KNEE_STEPS - 2);
                self.phase = Phase::Ramp;
            }
            return;
        }
        self.phase = Phase::Confirm { at: at + 1, answer, above };
        match (at % 2, above) {
            (0, _) => self.push_plain_step(
                answer,
                Purpose::Confirm,
                if at == 0 { CONFIRM_ANSWER } else { StoppingRule { accept: true, ..CONFIRM_ANSWER } },
            ),
            (_, Some(above)) => self.push_plain_step(above, Purpose::Confirm, CONFIRM_ABOVE),
            (_, None) => {}
        }
    }

    /// Learns from a completed step.
    pub(super) fn learn(&mut self, settings: &SearchSettings, summary: StepSummary) {
        if summary.way != StepMode::Plain {
            self.learn_rate_limited(settings, &summary, summary.way != StepMode::Paced);
            self.evidence.add(summary);
            return;
        }
        if let Some(since) = self.is_rate(&summary) {
            self.queue.clear();
            self.phase = Phase::RateLimited(RateLimited::new(&summary, since));
            self.evidence.add(summary);
            return;
        }
        let (cap, ended) = (summary.cap, summary.ended);
        let edge = summary.edge;
        let in_flight = summary.in_flight;
        let refused = summary.answered == 0 && summary.attempts == 0 && summary.failure.is_some();
        if ended == StepEnd::Accepted && !self.is_consistent_with_earlier(settings, &summary) {
            return;
        }
        let looks = ended == StepEnd::Accepted && self.references < MAX_REFERENCES;
        let contradicted = if looks { self.evidence.contradicting_cap(&summary) } else { None };
        if let Some(other) = contradicted
            && self.is_first_contradiction(cap)
        {
            self.references += 1;
            self.measure_again(cap, ACCEPT);
            self.measure_again(other, REFERENCE);
            return;
        }
        self.contradicting = self.contradicting.filter(|&odd| odd != cap);
        self.evidence.add(summary);
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
                let held = in_flight.floor() as usize;
                let guess = Some(held.clamp(1, cap.saturating_sub(1).max(1)));
                if self.evidence.good.is_none_or(|good| good < cap) {
                    self.evidence.bad = Some(RejectedCap::new(cap, RejectionCause::Client, guess));
                }
            }
            StepEnd::Rate | StepEnd::Undecided => {
                if refused {
                    self.no_answer = Some(NoAnswer::Refused);
                    self.phase = Phase::Done;
                } else if self.evidence.good.is_none_or(|good| good < cap) {
                    self.evidence.bad = Some(RejectedCap::new(cap, RejectionCause::Failures, None));
                }
            }
        }
    }

    /// Returns the time from which a rate limit applies, if one does: the gate held calls back for
    /// it, the server named it, or positions that were accepted earlier in the same step were
    /// rejected, twice.
    fn is_rate(&self, summary: &StepSummary) -> Option<f64> {
        let spent = |summary: &StepSummary| summary.ended == StepEnd::Rejected && summary.spent.is_some();
        match summary.ended {
            StepEnd::Rate => Some(summary.began),
            StepEnd::Rejected if matches!(summary.hint, Some(LimitHint::Requests | LimitHint::Tokens)) => {
                Some(summary.began)
            }
            StepEnd::Rejected if spent(summary) => {
                let before = self
                    .evidence
                    .all_summaries()
                    .iter()
                    .rev()
                    .take(MAX_SPENT_DISTANCE)
                    .find(|summary| spent(summary))?;
                before.spent
            }
            _ => None,
        }
    }
}

impl Policy {
    /// Returns the number of remaining calls: lower bound, likely value and upper bound.
    pub(super) fn remaining_calls(&self, settings: &SearchSettings) -> (usize, usize, usize) {
        let confirm = 2 * (CONFIRM_ANSWER.calls + CONFIRM_ABOVE.calls);
        match self.phase {
            Phase::Done => (0, 0, 0),
            Phase::RateLimited(_) => (60, 300, 800),
            Phase::Confirm { at, .. } => {
                let left = confirm * (4 - at.min(4)) / 4;
                (left.min(CONFIRM_ANSWER.calls), left, left + 600)
            }
            Phase::Narrow => (confirm, confirm + 2 * ACCEPT.calls, confirm + 1_000),
            Phase::Ramp => {
                let from = self.evidence.good.unwrap_or(settings.start).max(1);
                let doublings = |to: usize| (to.max(from) as f64 / from as f64).log2().ceil() as usize + 1;
                // A step upwards fills its new slots at once, and is evaluated by the calls after
                // that.
                let ramp = |to: usize| doublings(to) * RAMP.calls + to.saturating_sub(from);
                let highest = settings.max_cap;
                let likely = highest.min((4 * from).max(128));
                (
                    RAMP.calls + confirm,
                    ramp(likely) + 2 * ACCEPT.most + confirm,
                    ramp(highest) + 6 * ACCEPT.most + 3 * confirm,
                )
            }
        }
    }
}
