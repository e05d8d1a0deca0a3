//! Groups steps by cap, for curves over caps.

use std::collections::BTreeMap;

use crate::outcome::{CallOutcomes, SweepOutcome};
use crate::result::{Purpose, StepResult, StepVerdict};

/// All steps at one cap.
pub(super) struct Pooled<'a> {
    pub(super) cap: usize,
    /// The steps, in order of time.
    pub(super) steps: Vec<&'a StepResult>,
}

impl Pooled<'_> {
    /// Returns the mean over valid steps, weighted by their calls, or `None` without a value.
    pub(super) fn mean(&self, of: impl Fn(&StepResult) -> Option<f64>) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for step in self.steps.iter().filter(|step| is_valid(step)) {
            if let Some(value) = of(step).filter(|value| value.is_finite()) {
                let calls = step.calls.max(1) as f64;
                sum += calls * value;
                weight += calls;
            }
        }
        (weight > 0.0).then(|| sum / weight)
    }

    /// Returns the outcomes of all calls at the cap.
    pub(super) fn ends(&self, outcome: &SweepOutcome) -> CallOutcomes {
        let mut sum = CallOutcomes::default();
        for ends in outcome.calls.iter().filter(|ends| self.steps.iter().any(|step| step.step == ends.step)) {
            sum.first_try += ends.first_try;
            sum.retried += ends.retried;
            for (cause, n) in &ends.failed {
                *sum.failed.entry(*cause).or_default() += n;
            }
        }
        sum
    }
}

/// Returns the steps by cap, without drains, because a drain measures saved credit instead of
/// throughput.
pub(super) fn by_cap(outcome: &SweepOutcome) -> Vec<Pooled<'_>> {
    let mut caps: BTreeMap<usize, Vec<&StepResult>> = BTreeMap::new();
    for step in outcome.steps.iter().filter(|step| step.purpose != Purpose::Drain) {
        caps.entry(step.cap).or_default().push(step);
    }
    caps.into_iter().map(|(cap, steps)| Pooled { cap, steps }).collect()
}

/// Returns `true` if the step shows something about the server.
pub(super) fn is_valid(step: &StepResult) -> bool {
    !matches!(step.verdict, StepVerdict::Invalid(_))
}
