//! Estimates how many calls a search still needs.

use super::SearchSettings;
use super::next_step::{MAX_ROUNDS, Phase, Policy};
use super::step_stopping_rules::{ACCEPT, CONFIRM_ABOVE, CONFIRM_ANSWER, RAMP};

impl Policy {
    /// Returns the estimated number of calls until the search is done: lower bound, likely value
    /// and upper bound.
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
                    ramp(highest) + MAX_ROUNDS * (2 * ACCEPT.most + confirm) + 2 * highest,
                )
            }
        }
    }
}
