//! Steps of one cap taken together: what a curve over caps is drawn through.

use std::collections::BTreeMap;

use crate::outcome::{CallOutcomes, SweepOutcome};
use crate::result::{Purpose, StepResult, StepVerdict};

/// All steps of one cap.
pub(super) struct Pooled<'a> {
    pub(super) cap: usize,
    /// In the order of time.
    pub(super) steps: Vec<&'a StepResult>,
}

impl Pooled<'_> {
    /// The mean of what valid steps say, by their calls. `None`: none says anything.
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

    /// What became of its calls, all of them together.
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

/// Steps by cap. Those that drain a rate's credit are no part of a curve: they measure what was saved, not what is served.
pub(super) fn by_cap(outcome: &SweepOutcome) -> Vec<Pooled<'_>> {
    let mut caps: BTreeMap<usize, Vec<&StepResult>> = BTreeMap::new();
    for step in outcome.steps.iter().filter(|step| step.purpose != Purpose::Drain) {
        caps.entry(step.cap).or_default().push(step);
    }
    caps.into_iter().map(|(cap, steps)| Pooled { cap, steps }).collect()
}

/// Whether it says something of the server.
pub(super) fn is_valid(step: &StepResult) -> bool {
    !matches!(step.verdict, StepVerdict::Invalid(_))
}
