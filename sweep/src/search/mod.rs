//! The search: decides which cap to measure next, and computes the answer. Pure: all observations
//! are inputs, with their times. The same observations lead to the same decisions and the same
//! answer.
//!
//! # Terms
//!
//! - A **usable** (or good) cap was accepted in a step; an **unusable** (or bad) cap was rejected.
//! - The **work** of a call is its number of output tokens. Its **service time** is the time for
//!   which it occupies slots.
//! - An **era** is a period in which the server behaved consistently. Evidence from earlier eras is
//!   ignored.
//! - A **reference** step measures a cap again. A **drain** step uses up the credit of a rate
//!   limit, which is the unused quota that it has accumulated.
//!
//! # Modules
//!
//! - `step_monitor` collects the observations of the current step, and decides when the step is
//!   complete (`step_stopping_rules`). It uses a sequential test of failures (`sprt`), the
//!   positions of failures (`failure_positions`), the service time (`service_time`) and
//!   `quantiles`. The result is a `step_summary`.
//! - `next_step` contains the policy, which decides the next step from the `evidence`: first
//!   upwards, then between a usable and an unusable cap or at the `knee` of the `curve`, and
//!   finally the `confirmation`. `remaining_calls` estimates their calls. `consistency` detects
//!   contradictions, and `react_to_failures` resolves them. If a rate limit applies, `rate_limited`
//!   decides instead, from the `rate_history`.
//! - `engine_queue` interprets the metrics of the inference engine, and `noise` measures how much
//!   repeated steps disagree.
//! - `answer` computes the answer, and `interval` its confidence interval.

mod answer;
mod confirmation;
mod consistency;
mod curve;
mod engine_queue;
mod evidence;
mod failure_positions;
mod interval;
mod knee;
mod next_step;
mod noise;
mod quantiles;
mod rate_history;
mod rate_limited;
mod react_to_failures;
mod remaining_calls;
mod service_time;
mod settings;
mod share_in_time;
mod sprt;
mod step_monitor;
mod step_stopping_rules;
mod step_summary;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::normal_distribution;
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::search_result::{Purpose, StepResult, SweepAnswer};

use next_step::{NextStep, Policy};
pub use settings::SearchSettings;
use step_monitor::{StepMonitor, StepTask};

/// A decision of the search: what the driver does next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "move", rename_all = "snake_case")]
pub enum SearchAction {
    /// Set this cap, and keep more calls waiting than slots are free, until [`Search::is_settled`]
    /// returns `true`.
    #[serde(rename = "hold")]
    Measure {
        /// Number of the step, from 0.
        step: usize,
        /// Cap to set at the gate.
        cap: usize,
        /// Why the search measures this cap.
        purpose: Purpose,
    },
    /// Send nothing, wait until no exchange is in flight, and then wait for `seconds`.
    Rest {
        /// Time to wait, in seconds.
        seconds: f64,
    },
    /// End the sweep, because the search is done.
    Done,
}

/// State of a search, which receives observations and returns decisions. See the [module](self).
#[derive(Debug)]
pub struct Search {
    settings: SearchSettings,
    policy: Policy,
    monitor: Option<StepMonitor>,
    steps: Vec<StepResult>,
    steps_begun: usize,
    max_calls: usize,
}

impl Search {
    /// Returns a search without observations.
    pub fn new(settings: SearchSettings) -> Self {
        let policy = Policy::new();
        let max_calls = policy.remaining_calls(&settings).2;
        Self { settings, policy, monitor: None, steps: Vec::new(), steps_begun: 0, max_calls }
    }

    /// Ends the current step, if any, and returns the next decision. `now` is the time in seconds
    /// since the sweep began. Call this after the previous decision was carried out. A step that
    /// was cut short is evaluated with its observations so far.
    pub fn next(&mut self, now: f64) -> SearchAction {
        self.conclude_step(now);
        match self.policy.next(&self.settings, self.max_calls) {
            None => SearchAction::Done,
            Some(NextStep::Rest { seconds }) => SearchAction::Rest { seconds },
            Some(NextStep::Measure { cap, purpose, stopping_rule, mode }) => {
                let step = self.steps_begun;
                self.steps_begun += 1;
                let evidence = &self.policy.evidence;
                let task = StepTask {
                    step,
                    cap,
                    purpose,
                    stopping_rule,
                    mode,
                    floor: evidence.good.filter(|&good| good < cap).unwrap_or(0),
                    prior_attempts: if stopping_rule.accept { evidence.attempts_at(cap) } else { (0, 0) },
                    test: evidence.test(&self.settings, cap),
                    objective: (self.settings.ttft, self.settings.tpot),
                };
                self.monitor = Some(StepMonitor::new(task, now));
                SearchAction::Measure { step, cap, purpose }
            }
        }
    }

    fn conclude_step(&mut self, now: f64) {
        let Some(monitor) = self.monitor.take() else { return };
        let summary = monitor.summary(now);
        let z = normal_distribution::quantile(0.5 + 0.5 * self.settings.confidence);
        self.steps.push(monitor.result(&summary, self.policy.evidence.work(), z));
        self.policy.on_step(&self.settings, summary);
    }

    /// Records an attempt that has ended. Attempts, calls and load samples must be recorded in
    /// order of time.
    pub fn on_attempt(&mut self, seen: &AttemptObservation) {
        self.policy.evidence.rate_history.on_attempt(seen);
        if let Some(monitor) = &mut self.monitor {
            monitor.on_attempt(seen);
        }
    }

    /// Records a call that has ended.
    pub fn on_call(&mut self, seen: &CallObservation) {
        self.policy.evidence.on_call(seen);
        if let Some(monitor) = &mut self.monitor {
            monitor.on_call(seen);
        }
    }

    /// Records a load sample.
    pub fn on_load_sample(&mut self, sample: &LoadSample) {
        self.policy.evidence.on_load_sample(sample);
        if let Some(monitor) = &mut self.monitor {
            monitor.on_load_sample(sample);
        }
    }

    /// Returns `true` if the current step has enough observations, or no step is in progress.
    /// Should be checked after each recorded event.
    pub fn is_settled(&self) -> bool {
        self.policy.evidence.sent >= self.max_calls
            || self.monitor.as_ref().is_none_or(|monitor| monitor.is_settled(self.policy.evidence.work()))
    }

    /// Returns the maximum number of calls that the search sends, including the preflight call. It
    /// is the upper bound of the plan.
    pub fn max_calls(&self) -> usize {
        self.max_calls
    }

    /// Returns `true` if calls have a latency objective.
    pub(crate) fn has_objective(&self) -> bool {
        self.settings.ttft.or(self.settings.tpot).is_some()
    }

    /// Returns the results of all completed steps, in order.
    pub fn steps(&self) -> &[StepResult] {
        &self.steps
    }

    /// Returns the highest cap known to be usable and the lowest cap known to be unusable. Each is
    /// `None` if no such cap is known.
    pub fn bracket(&self) -> (Option<usize>, Option<usize>) {
        (self.policy.evidence.good, self.policy.evidence.bad.map(|bad| bad.cap))
    }

    /// Returns the estimated number of calls until the search is done: lower bound, likely value
    /// and upper bound. The search never sends more calls than the upper bound before the first
    /// decision.
    pub fn remaining_calls(&self) -> (usize, usize, usize) {
        let left = self.max_calls.saturating_sub(self.policy.evidence.sent);
        let (least, likely, most) = self.policy.remaining_calls(&self.settings);
        (least.min(left), likely.min(left), most.min(left))
    }

    /// Returns the answer from the observations so far. It is final once [`Search::next`] has
    /// returned [`SearchAction::Done`].
    pub fn answer(&self) -> SweepAnswer {
        answer::build(&self.policy, &self.settings, &self.steps)
    }
}
