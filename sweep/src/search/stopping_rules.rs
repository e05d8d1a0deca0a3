//! How much each kind of step has to tell.

use super::step_monitor::StoppingRule;

/// On the way up: enough to see whether it still rises.
pub(super) const RAMP: StoppingRule = StoppingRule { calls: 24, error: 0.04, most: 60, accept: false };
/// Between a good cap and a bad one.
pub(super) const ACCEPT: StoppingRule = StoppingRule { calls: 30, error: 0.03, most: 80, accept: false };
/// Where the knee is sought.
pub(super) const MEASURE: StoppingRule = StoppingRule { calls: 60, error: 0.012, most: 100, accept: false };
/// The answer, to confirm it.
pub(super) const AGAIN: StoppingRule = StoppingRule { calls: 40, error: 0.02, most: 60, accept: false };
/// What is above the answer.
pub(super) const LOOK: StoppingRule = StoppingRule { calls: 24, error: 0.025, most: 40, accept: false };
/// Whether a cap is as it was.
pub(super) const REFERENCE: StoppingRule = StoppingRule { calls: 16, error: 0.05, most: 40, accept: false };
