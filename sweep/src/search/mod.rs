//! Decides which cap to hold next, and derives the answer. Pure: all observations are inputs, with
//! their times.
//!
//! The same observations give the same decisions and the same answer. The modules, from the outside
//! in:
//!
//! - `step_monitor` collects the observations of the current step and decides when the step is
//!   complete (`stopping_rules`), with a sequential test of failures (`sprt`), the positions of
//!   failures (`positions`), the time that calls hold slots (`service_time`), and `quantiles`. A
//!   completed step becomes a `step_summary`.
//! - `policy` decides the next step from the `evidence`: upwards, between a good and a bad cap, to
//!   the `knee` of the `curve`, and finally the confirmation. `consistency` detects contradictions,
//!   and `recovery` resolves them. If a rate limit applies, `rate_limited` takes over, with the
//!   `rate_history`.
//! - `answer` derives the answer, with an `interval`.

mod answer;
mod consistency;
mod curve;
mod evidence;
mod interval;
mod knee;
mod policy;
mod positions;
mod quantiles;
mod rate_history;
mod rate_limited;
mod recovery;
mod service_time;
mod settings;
mod sprt;
mod step_monitor;
mod step_summary;
mod stopping_rules;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::normal;
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::result::{Purpose, StepResult, SweepAnswer};

use policy::{NextStep, Policy};
pub use settings::SearchSettings;
use step_monitor::{StepMonitor, StepTask};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "move", rename_all = "snake_case")]
pub enum SearchAction {
    /// Hold this cap with a backlog until [`Search::is_settled`] returns `true`.
    Hold {
        /// Number of the step.
        step: usize,
        /// The cap.
        cap: usize,
        /// Why the step is made.
        purpose: Purpose,
    },
    /// Send nothing, let calls in flight end, and then wait.
    Rest {
        /// Duration of the wait, in seconds.
        seconds: f64,
    },
    /// The search is done.
    Done,
}

/// A search; see the [module](self).
#[derive(Debug)]
pub struct Search {
    settings: SearchSettings,
    policy: Policy,
    monitor: Option<StepMonitor>,
    steps: Vec<StepResult>,
    begun: usize,
}

impl Search {
    /// Returns a search without observations.
    pub fn new(settings: SearchSettings) -> Self {
        Self { settings, policy: Policy::new(), monitor: None, steps: Vec::new(), begun: 0 }
    }

    /// Returns what to do next, at time `now`. Must be called when the previous action is complete.
    /// A hold that was cut short counts with its observations.
    pub fn next(&mut self, now: f64) -> SearchAction {
        self.conclude(now);
        match self.policy.next(&self.settings) {
            None => SearchAction::Done,
            Some(NextStep::Rest { seconds }) => SearchAction::Rest { seconds },
            Some(NextStep::Hold { cap, purpose, need, way }) => {
                let step = self.begun;
                self.begun += 1;
                let known = &self.policy.evidence;
                let task = StepTask {
                    step,
                    cap,
                    purpose,
                    need,
                    way,
                    floor: known.good.filter(|&good| good < cap).unwrap_or(0),
                    prior: if need.accept { known.attempts_at(cap) } else { (0, 0) },
                    test: known.test(&self.settings, cap),
                    objective: (self.settings.ttft, self.settings.tpot),
                };
                self.monitor = Some(StepMonitor::new(task, now));
                SearchAction::Hold { step, cap, purpose }
            }
        }
    }

    fn conclude(&mut self, now: f64) {
        let Some(monitor) = self.monitor.take() else { return };
        let summary = monitor.summary(now);
        let z = normal::quantile(0.5 + 0.5 * self.settings.confidence);
        self.steps.push(monitor.result(&summary, self.policy.evidence.work(), z));
        self.policy.learn(&self.settings, summary);
    }

    /// Records an ended attempt. Events must be recorded in order of time.
    pub fn attempt(&mut self, seen: &AttemptObservation) {
        self.policy.evidence.rate_history.attempt(seen);
        if let Some(monitor) = &mut self.monitor {
            monitor.attempt(seen);
        }
    }

    /// Records an ended call.
    pub fn call(&mut self, seen: &CallObservation) {
        self.policy.evidence.call(seen);
        if let Some(monitor) = &mut self.monitor {
            monitor.call(seen);
        }
    }

    /// Records a load sample.
    pub fn pulse(&mut self, pulse: &LoadSample) {
        self.policy.evidence.rate_history.pulse(pulse);
        if let Some(monitor) = &mut self.monitor {
            monitor.pulse(pulse);
        }
    }

    /// Returns `true` if the current cap has been held long enough. Should be called after each
    /// event.
    pub fn is_settled(&self) -> bool {
        self.monitor.as_ref().is_none_or(|monitor| monitor.is_settled(self.policy.evidence.work()))
    }

    /// Returns the completed steps.
    pub fn steps(&self) -> &[StepResult] {
        &self.steps
    }

    /// Returns the highest cap known to be good and the lowest cap known to be bad.
    pub fn bracket(&self) -> (Option<usize>, Option<usize>) {
        (self.policy.evidence.good, self.policy.evidence.bad.map(|bad| bad.cap))
    }

    /// Returns the number of remaining calls: lower bound, likely value and upper bound. Before the
    /// first step, this is the plan.
    pub fn remaining_calls(&self) -> (usize, usize, usize) {
        self.policy.remaining_calls(&self.settings)
    }

    /// Returns the current answer, which is final after [`SearchAction::Done`].
    pub fn answer(&self) -> SweepAnswer {
        answer::build(&self.policy, &self.settings)
    }
}
