//! Groups the steps of a sweep by their cap.

use std::collections::BTreeMap;

use crate::search_result::{Purpose, StepResult, StepVerdict};
use crate::sweep_outcome::{CallOutcomes, SweepOutcome};

/// All steps at one cap, except drain steps ([`Purpose::Drain`]).
pub(super) struct StepsAtCap<'a> {
    pub(super) cap: usize,
    /// Steps in order of time.
    pub(super) steps: Vec<&'a StepResult>,
}

impl StepsAtCap<'_> {
    /// Returns the mean of the value that `of` returns for each valid step at the cap, weighted by
    /// the calls of the steps. Returns `None` if no valid step has a finite value.
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

    /// Returns the sums of the call outcomes of all steps at the cap.
    pub(super) fn call_outcomes(&self, outcome: &SweepOutcome) -> CallOutcomes {
        let mut sum = CallOutcomes::default();
        for outcomes in
            outcome.calls.iter().filter(|outcomes| self.steps.iter().any(|step| step.step == outcomes.step))
        {
            sum.first_try += outcomes.first_try;
            sum.retried += outcomes.retried;
            for (cause, n) in &outcomes.failed {
                *sum.failed.entry(*cause).or_default() += n;
            }
        }
        sum
    }
}

/// Returns the steps grouped by cap, in ascending order of the caps. Omits drain steps, because
/// they use up the quota that a rate limit has accumulated, and do not show the throughput at the
/// cap.
pub(super) fn by_cap(outcome: &SweepOutcome) -> Vec<StepsAtCap<'_>> {
    let mut caps: BTreeMap<usize, Vec<&StepResult>> = BTreeMap::new();
    for step in outcome.steps.iter().filter(|step| step.purpose != Purpose::Drain) {
        caps.entry(step.cap).or_default().push(step);
    }
    caps.into_iter().map(|(cap, steps)| StepsAtCap { cap, steps }).collect()
}

/// Returns `true` if the step shows something about the server, which means that its verdict is not
/// [`StepVerdict::Invalid`].
pub(super) fn is_valid(step: &StepResult) -> bool {
    !matches!(step.verdict, StepVerdict::Invalid(_))
}
