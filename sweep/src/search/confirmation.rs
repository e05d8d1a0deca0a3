//! Confirms the answer: measures it and another cap in turn, twice each. If the interval is then
//! too wide because of noise, or no step at one of the caps was valid, measures them again. An
//! answer that this client limits is not confirmed.

use super::SearchSettings;
use super::answer;
use super::evidence::RejectionCause;
use super::knee::NEAR;
use super::next_step::{MAX_KNEE_STEPS, MAX_ROUNDS, Phase, Policy, SUFFICIENT_CALLS};
use super::noise::NOTABLE;
use super::step_monitor::StoppingRule;
use super::step_stopping_rules::{CONFIRM_ABOVE, CONFIRM_ANSWER, CONFIRM_OBJECTIVE};
use super::step_summary::StepEnd;
use crate::search_result::{Binding, Purpose};

/// Maximum width of the interval on each side of a confirmed answer, as a share of the answer, if
/// the measurement is noisy.
const MAX_WIDTH: f64 = 0.25;

impl Policy {
    /// Queues the next step of the confirmation. After the last one, ends the search, or continues
    /// it if the answer has changed or its interval is too wide.
    pub(super) fn confirm(&mut self, settings: &SearchSettings) {
        let Phase::Confirm { at, answer, above, since } = self.phase else { return };
        if at >= 4 {
            // Check whether the answer is still the same with the additional points.
            let Some(again) = self.evidence.answer(settings) else {
                self.phase = Phase::Done;
                return;
            };
            let (low, high) = answer::knee_interval(self, settings, again);
            let is_late = self.evidence.has_late_calls();
            let same = again.abs_diff(answer) as f64 <= (NEAR * answer as f64).max(0.5)
                || ((is_late || self.evidence.engine_queue().is_some()) && (low..=high).contains(&answer));
            // A step that this client or a rate limit disturbed confirms nothing.
            let is_measured = |cap: usize| {
                let steps = self.evidence.all_summaries().iter().skip(since);
                let is_valid = |end: StepEnd| matches!(end, StepEnd::Accepted | StepEnd::Rejected);
                steps.filter(|summary| summary.cap == cap).any(|summary| is_valid(summary.ended))
            };
            let is_client = answer::binding(self, settings, again) == Binding::Client;
            let sure = same
                && !is_client
                && is_measured(answer)
                && above.is_none_or(is_measured)
                && self.is_narrow(settings, again);
            let max_rounds = if is_late { 2 * MAX_ROUNDS } else { MAX_ROUNDS };
            let is_last = self.rounds >= max_rounds || self.evidence.calls >= SUFFICIENT_CALLS;
            // Further steps cannot show more than this client can send.
            if sure || is_last || (same && is_client) {
                self.confirmed = sure;
                self.phase = Phase::Done;
            } else if same {
                // More steps at the same caps make the interval narrower. If an objective sets the
                // knee, the curve knows it better than the nearest measured cap.
                self.rounds += 1;
                let knee = self.evidence.knee(settings).filter(|_| is_late);
                let answer = knee.map_or(again, |knee| knee.cap);
                let is_wider_above = high.saturating_sub(again) > again.saturating_sub(low);
                let is_kv_full = self.evidence.engine_queue().is_some_and(|queue| queue.is_kv_full);
                let above = match (is_kv_full, is_wider_above) {
                    (true, true) => Some(high.min(settings.max_cap)),
                    (true, false) => self.evidence.confirmation_cap_below(settings, again),
                    (false, _) => self.evidence.confirmation_cap(settings, answer),
                };
                let since = self.evidence.all_summaries().len();
                self.phase = Phase::Confirm { at: 0, answer, above, since };
            } else {
                self.rounds += 1;
                self.knee_steps = self.knee_steps.min(MAX_KNEE_STEPS - 2);
                self.phase = Phase::Ramp;
            }
            return;
        }
        self.phase = Phase::Confirm { at: at + 1, answer, above, since };
        let (rule, rule_above) = if self.evidence.has_late_calls() {
            (CONFIRM_OBJECTIVE, CONFIRM_OBJECTIVE)
        } else {
            (CONFIRM_ANSWER, CONFIRM_ABOVE)
        };
        match (at % 2, above) {
            (0, _) => {
                self.push_plain_step(answer, Purpose::Confirm, StoppingRule { accept: at > 0, ..rule });
            }
            (_, Some(above)) => self.push_plain_step(above, Purpose::Confirm, rule_above),
            (_, None) => {}
        }
    }

    /// Returns `true` if the interval of the answer `cap` extends at most [`MAX_WIDTH`] of the cap
    /// to either side. Returns `true` also if the interval does not depend on noise: failures
    /// determine it, or the steps agree and no metrics of an engine determine it.
    fn is_narrow(&self, settings: &SearchSettings, cap: usize) -> bool {
        let by_failures = self.evidence.bad.is_some_and(|bad| bad.cause == RejectionCause::Failures);
        let is_noisy = self.evidence.noise() >= NOTABLE;
        let depends_on_noise =
            is_noisy || self.evidence.has_late_calls() || self.evidence.engine_queue().is_some();
        if by_failures || !depends_on_noise {
            return true;
        }
        let (low, high) = answer::knee_interval(self, settings, cap);
        let width = (MAX_WIDTH * cap as f64).max(1.0);
        (cap - low) as f64 <= width && (high - cap) as f64 <= width
    }
}
