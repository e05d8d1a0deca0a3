//! Stopping rules, which define when a step has enough observations: one for each kind of step.

use super::step_monitor::StoppingRule;

/// Stopping rule of a step that raises the cap to find out whether the goodput still rises.
pub(super) const RAMP: StoppingRule = StoppingRule { calls: 24, error: 0.04, most: 60, accept: false };
/// Stopping rule of a step that finds out whether a cap between a usable and an unusable one is
/// usable.
pub(super) const ACCEPT: StoppingRule = StoppingRule { calls: 30, error: 0.03, most: 80, accept: false };
/// Stopping rule of a step that measures the goodput precisely near the knee.
pub(super) const MEASURE: StoppingRule = StoppingRule { calls: 60, error: 0.012, most: 100, accept: false };
/// Stopping rule of a step that confirms the answer.
pub(super) const CONFIRM_ANSWER: StoppingRule =
    StoppingRule { calls: 40, error: 0.02, most: 60, accept: false };
/// Stopping rule of a step that confirms the cap above the answer.
pub(super) const CONFIRM_ABOVE: StoppingRule =
    StoppingRule { calls: 24, error: 0.025, most: 40, accept: false };
/// Stopping rule of a step that confirms an answer, or the cap above it, if calls miss an
/// objective. The step is long, because a short step after a rise of the cap overestimates the
/// share of the calls in time: at first, many calls start together, and then few start in the same
/// step of the engine.
pub(super) const CONFIRM_OBJECTIVE: StoppingRule =
    StoppingRule { calls: 56, error: 0.02, most: 84, accept: false };
/// Stopping rule of a reference step, which measures a cap that was measured before.
pub(super) const REFERENCE: StoppingRule = StoppingRule { calls: 16, error: 0.05, most: 40, accept: false };
/// Stopping rule of a step at a server with a rate limit.
pub(super) const RATE_LIMITED: StoppingRule =
    StoppingRule { calls: 40, error: 0.02, most: 50, accept: false };
