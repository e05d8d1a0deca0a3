//! What follows from what was seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::FailureCause;

/// A figure, and the interval that holds the truth as often as [`crate::SearchSettings::confidence`] says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// From here
    pub low: f64,
    /// to here.
    pub high: f64,
}

/// What binds at the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// The server takes so many at once, and turns away the next.
    ConcurrencyLimit,
    /// The server takes so many requests over time.
    RequestRate,
    /// The server takes so many tokens over time.
    TokenRate,
    /// The server gets no faster by having more to do.
    Saturation,
    /// The engine's memory for keys and values is full: sequences are thrown out and computed anew.
    KvCliff,
    /// This client could not hold a higher cap.
    Client,
    /// Nothing did, up to the highest cap that was looked at.
    NotReached,
}

/// What a sweep answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepAnswer {
    /// The smallest confirmed cap whose goodput is within the tolerance of the best stable one. `None`: nothing can be said, and `because` says why.
    pub cap: Option<usize>,
    /// The interval on it.
    pub interval: Option<(usize, usize)>,
    /// Whether the interval's upper end is only as far as was looked.
    pub open_above: bool,
    /// What binds.
    pub binding: Option<Binding>,
    /// Whether it was confirmed: accepted again, in interleaved order, with what is above it.
    pub confirmed: bool,
    /// Why, in a sentence or two.
    pub because: String,
    /// Calls a second that completed at the answer.
    pub throughput: Option<Estimate>,
    /// Of these, those that met the objective.
    pub goodput: Option<Estimate>,
    /// Where a rate binds: requests a minute that are taken.
    pub rpm: Option<Estimate>,
    /// Where a rate binds: tokens a minute that are taken.
    pub tpm: Option<Estimate>,
    /// What a reader should know: drift, hysteresis, failures at any cap, client-bound steps.
    pub notes: Vec<String>,
}

/// Why a step was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// On the way up.
    Ramp,
    /// Between a good and a bad one.
    Narrow,
    /// Whether a cap that was good still is.
    Reference,
    /// Uses up what a rate limit has saved.
    Drain,
    /// Once more, in turns with others.
    Confirm,
}

/// What is thought of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum StepVerdict {
    /// Stable.
    Accepted,
    /// Not stable: more fails than may.
    Rejected(String),
    /// Says nothing: the client did not hold the cap, or a rate did not let it.
    Invalid(String),
    /// It ended before it could be told.
    Undecided(String),
}

/// One step: a cap that was held for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Its number.
    pub step: usize,
    /// The cap.
    pub cap: usize,
    /// Why it was made.
    pub purpose: Purpose,
    /// When it began and ended, seconds since the sweep began.
    pub began: f64,
    /// See `began`.
    pub ended: f64,
    /// Calls that were cut off at its beginning.
    pub warm_up: usize,
    /// Calls that it is judged by.
    pub calls: usize,
    /// Attempts that it is judged by, and those of them that failed, by cause.
    pub attempts: usize,
    /// See `attempts`.
    pub failures: BTreeMap<FailureCause, usize>,
    /// What is thought of it.
    #[serde(flatten)]
    pub verdict: StepVerdict,
    /// Completed calls a second.
    pub throughput: Option<Estimate>,
    /// Those that met the objective.
    pub goodput: Option<Estimate>,
    /// End to end from admission, seconds.
    pub latency: LatencyQuantiles,
    /// From admission to first token, seconds.
    pub ttft: LatencyQuantiles,
    /// Between tokens, seconds.
    pub tpot: LatencyQuantiles,
    /// Slots held, in the mean.
    pub in_flight: f64,
    /// The share of its time in which calls waited while slots were free and no rate or cool-down forbade them.
    pub gap_fraction: f64,
    /// The share of its time in which a rate or a cool-down forbade calls.
    pub forbidden: f64,
}

/// Quantiles; each only where there are enough samples that it can be bounded from above at 95 %: 59 for a p95, 299 for a p99.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyQuantiles {
    /// How many samples.
    pub n: usize,
    /// The median.
    pub p50: Option<f64>,
    /// `None`: n is below 59.
    pub p95: Option<f64>,
    /// `None`: n is below 299.
    pub p99: Option<f64>,
}
