//! The metrics of one tenant at one target.

use std::time::Duration;

use prometheus::{Gauge, Histogram, HistogramVec, IntCounter};

use super::families::Families;
use crate::context::Lane;
use crate::error::Reason;
use crate::metrics::Outcome;

/// Label values for the tokens that the provider reports: those of prompts and those of answers.
pub(super) const DIRECTIONS: [&str; 2] = ["input", "output"];

/// The Prometheus series of one tenant at one target. They are looked up only once.
pub(crate) struct TenantMetrics {
    pub(crate) queue_wait: [Histogram; 3],
    pub(crate) ttft: [Histogram; 3],
    pub(crate) duration: [Histogram; 3],
    pub(crate) outcomes: [IntCounter; Outcome::ALL.len()],
    pub(crate) refused: [IntCounter; Reason::ALL.len()],
    pub(crate) admitted: IntCounter,
    pub(crate) objective: IntCounter,
    pub(crate) input_tokens: IntCounter,
    pub(crate) output_tokens: IntCounter,
    pub(super) in_flight: Gauge,
    pub(super) waiting: Gauge,
    pub(super) held: Gauge,
}

impl TenantMetrics {
    pub(super) fn new(families: &Families, target: &str, tenant: &str) -> Self {
        let by_lane = |family: &HistogramVec| {
            Lane::ALL.map(|lane| family.with_label_values(&[target, tenant, lane.as_str()]))
        };
        let pair = [target, tenant];
        let tokens = |direction| families.tokens.with_label_values(&[target, tenant, direction]);
        Self {
            queue_wait: by_lane(&families.queue_wait),
            ttft: by_lane(&families.ttft),
            duration: by_lane(&families.duration),
            outcomes: Outcome::ALL
                .map(|outcome| families.calls.with_label_values(&[target, tenant, outcome.as_str()])),
            refused: Reason::ALL
                .map(|reason| families.refused.with_label_values(&[target, tenant, reason.as_str()])),
            admitted: families.admitted.with_label_values(&pair),
            objective: families.objective.with_label_values(&pair),
            input_tokens: tokens(DIRECTIONS[0]),
            output_tokens: tokens(DIRECTIONS[1]),
            in_flight: families.in_flight.with_label_values(&pair),
            waiting: families.waiting.with_label_values(&pair),
            held: families.tenants_held.with_label_values(&pair),
        }
    }

    /// Counts an admitted attempt, and records the time that it waited in the queue.
    pub(crate) fn on_admitted(&self, lane: Lane, waited: Duration) {
        self.admitted.inc();
        self.queue_wait[lane as usize].observe(waited.as_secs_f64());
    }

    /// Counts a call that admission rejected, by reason.
    pub(crate) fn on_refused(&self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|known| *known == reason) {
            self.refused[at].inc();
        }
    }

    /// Counts a call that has ended, by outcome.
    pub(crate) fn on_ended(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].inc();
    }

    /// Records the time to the first token of a call, from when the call was made, so that its time
    /// in the queue is included.
    pub(crate) fn ttft(&self, lane: Lane, seconds: Duration) {
        self.ttft[lane as usize].observe(seconds.as_secs_f64());
    }

    /// Records the duration of a completed call, including its time in the queue. `met` is `true`
    /// if the call met the objective of its lane or target for the time to the first token
    /// (`ttft`).
    pub(crate) fn on_completed(&self, lane: Lane, duration: Duration, met: bool) {
        self.duration[lane as usize].observe(duration.as_secs_f64());
        if met {
            self.objective.inc();
        }
    }

    /// Adds the numbers of input and output tokens that the provider reported for a call.
    pub(crate) fn tokens(&self, input: u64, output: u64) {
        self.input_tokens.inc_by(input);
        self.output_tokens.inc_by(output);
    }
}
