//! Stopping rules of each kind of step.

use super::step_monitor::StoppingRule;

/// On the way up: enough to see whether the goodput still rises.
pub(super) const RAMP: StoppingRule = StoppingRule { calls: 24, error: 0.04, most: 60, accept: false };
/// Between a good cap and a bad cap.
pub(super) const ACCEPT: StoppingRule = StoppingRule { calls: 30, error: 0.03, most: 80, accept: false };
/// Near the knee.
pub(super) const MEASURE: StoppingRule = StoppingRule { calls: 60, error: 0.012, most: 100, accept: false };
/// Confirmation of the answer.
pub(super) const CONFIRM_ANSWER: StoppingRule =
    StoppingRule { calls: 40, error: 0.02, most: 60, accept: false };
/// Confirmation of the cap above the answer.
pub(super) const CONFIRM_ABOVE: StoppingRule =
    StoppingRule { calls: 24, error: 0.025, most: 40, accept: false };
/// Check of a cap that was measured before.
pub(super) const REFERENCE: StoppingRule = StoppingRule { calls: 16, error: 0.05, most: 40, accept: false };
