//! Which cap to hold next, and the answer. Pure: fed what was seen, with its times.
//!
//! [`Search`] is told of every attempt, call and pulse. The same events give the same moves and the same answer. From the outside in:
//!
//! - `watch` collects what is seen of the step that is held, and says when it has told enough (`needs`): a sequential test of its failures (`sprt`), where they lie (`positions`), the time of a
//!   call (`service`), `quantiles`. What is left of a step that is over is a `visit`.
//! - `policy` says which step comes next, from what is `known`: up, between a good cap and a bad one, to the `knee` of the `curve`, and at last the confirmation. What does not go together is found by
//!   `doubts`, and followed up by `recover`. Where a rate binds, `pace` takes over, with what the `tape` says is let through.
//! - `answer` puts it into figures, with an `interval`, and into words.

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
    /// SpendReservation this cap with a backlog until [`Search::is_settled`].
    Hold {
        /// The step's number.
        step: usize,
        /// The cap.
        cap: usize,
        /// Why.
        purpose: Purpose,
    },
    /// Send nothing, let what is in flight end, and then wait for so many seconds.
    Rest {
        /// How long.
        seconds: f64,
    },
    /// The answer is there.
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Search {
    settings: SearchSettings,
    policy: Policy,
    watch: Option<StepMonitor>,
    steps: Vec<StepResult>,
    begun: usize,
}

impl Search {
    /// A search that has seen nothing.
    pub fn new(settings: SearchSettings) -> Self {
        Self { settings, policy: Policy::new(), watch: None, steps: Vec::new(), begun: 0 }
    }

    /// What to do next, at `now`. Asked when the move before is over: a hold that is settled, a rest that has passed. A hold that was cut short counts with what it told.
    pub fn next(&mut self, now: f64) -> SearchAction {
        self.conclude(now);
        match self.policy.next(&self.settings) {
            None => SearchAction::Done,
            Some(NextStep::Rest { seconds }) => SearchAction::Rest { seconds },
            Some(NextStep::Hold { cap, purpose, need, way }) => {
                let step = self.begun;
                self.begun += 1;
                let known = &self.policy.known;
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
                self.watch = Some(StepMonitor::new(task, now));
                SearchAction::Hold { step, cap, purpose }
            }
        }
    }

    fn conclude(&mut self, now: f64) {
        let Some(watch) = self.watch.take() else { return };
        let visit = watch.visit(now);
        let z = normal::quantile(0.5 + 0.5 * self.settings.confidence);
        self.steps.push(watch.result(&visit, self.policy.known.work(), z));
        self.policy.learn(&self.settings, visit);
    }

    /// An attempt ended. Told in the order of their ends, calls and pulses likewise.
    pub fn attempt(&mut self, seen: &AttemptObservation) {
        self.policy.known.tape.attempt(seen);
        if let Some(watch) = &mut self.watch {
            watch.attempt(seen);
        }
    }

    /// A call ended.
    pub fn call(&mut self, seen: &CallObservation) {
        self.policy.known.call(seen);
        if let Some(watch) = &mut self.watch {
            watch.call(seen);
        }
    }

    /// Things stand so.
    pub fn pulse(&mut self, pulse: &LoadSample) {
        self.policy.known.tape.pulse(pulse);
        if let Some(watch) = &mut self.watch {
            watch.pulse(pulse);
        }
    }

    /// Whether the cap held now has been held for long enough. Asked after each event.
    pub fn is_settled(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| watch.is_settled(self.policy.known.work()))
    }

    /// The steps that are over.
    pub fn steps(&self) -> &[StepResult] {
        &self.steps
    }

    /// The highest cap known to be good, and the lowest known to be bad.
    pub fn bracket(&self) -> (Option<usize>, Option<usize>) {
        (self.policy.known.good, self.policy.known.bad.map(|bad| bad.cap))
    }

    /// Calls that it may still take: least, likely, most. Before the first step this is the plan.
    pub fn remaining_calls(&self) -> (usize, usize, usize) {
        self.policy.remaining_calls(&self.settings)
    }

    /// What can be said now; final after [`SearchAction::Done`].
    pub fn answer(&self) -> SweepAnswer {
        answer::build(&self.policy, &self.settings)
    }
}
