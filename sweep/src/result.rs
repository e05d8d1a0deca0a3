//! Results that a search derives from its observations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::FailureCause;

/// A value with its confidence interval at [`crate::SearchSettings::confidence`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The limit that determines the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// The server rejects calls above a number of concurrent calls.
    ConcurrencyLimit,
    /// The server limits the rate of requests.
    RequestRate,
    /// The server limits the rate of tokens.
    TokenRate,
    /// More concurrency does not raise the server's throughput.
    Saturation,
    /// The engine's KV cache is full, so sequences are preempted and recomputed.
    KvCliff,
    /// This client could not keep a higher cap busy.
    Client,
    /// No limit was reached up to the highest cap tried.
    NotReached,
}

/// The answer of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepAnswer {
    /// The smallest confirmed cap whose goodput is within the tolerance of the best stable one.
    /// `None` if there is no answer; `because` then states the reason.
    pub cap: Option<usize>,
    /// Confidence interval of the cap.
    pub interval: Option<(usize, usize)>,
    /// Whether the upper end of the interval is only the highest cap tried.
    pub open_above: bool,
    /// The limit that determines the cap.
    pub binding: Option<Binding>,
    /// Whether the cap was accepted again, interleaved with the cap above it.
    pub confirmed: bool,
    /// Explanation in one or two sentences.
    pub because: String,
    /// Completed calls per second at the cap.
    pub throughput: Option<Estimate>,
    /// Calls per second at the cap that met the objective.
    pub goodput: Option<Estimate>,
    /// Requests per minute that the server accepts, if a rate limit determines the cap.
    pub rpm: Option<Estimate>,
    /// Tokens per minute that the server accepts, if a rate limit determines the cap.
    pub tpm: Option<Estimate>,
    /// Remarks for the reader: drift, hysteresis, background failures, client-bound steps.
    pub notes: Vec<String>,
}

/// Why a step was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To raise the cap.
    Ramp,
    /// To narrow the range between a good and a bad cap.
    Narrow,
    /// To check that a good cap still is good.
    Reference,
    /// To use up the saved credit of a rate limit.
    Drain,
    /// To confirm the answer, interleaved with other caps.
    Confirm,
}

/// The evaluation of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum StepVerdict {
    /// The cap is stable.
    Accepted,
    /// The cap is not stable: too many attempts fail. Contains the reason.
    Rejected(String),
    /// The step shows nothing about the server, because the client did not keep the cap busy or a
    /// rate limit did not allow it. Contains the reason.
    Invalid(String),
    /// The step ended before a decision. Contains the reason.
    Undecided(String),
}

/// One step: a cap that was held for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Sequence number.
    pub step: usize,
    /// The cap.
    pub cap: usize,
    /// Why the step was made.
    pub purpose: Purpose,
    /// Start, in seconds since the sweep began.
    pub began: f64,
    /// End, in seconds since the sweep began.
    pub ended: f64,
    /// Number of calls at the start that were excluded as warm-up.
    pub warm_up: usize,
    /// Number of calls that were evaluated.
    pub calls: usize,
    /// Number of attempts that were evaluated.
    pub attempts: usize,
    /// Number of failed attempts by cause.
    pub failures: BTreeMap<FailureCause, usize>,
    /// The evaluation.
    #[serde(flatten)]
    pub verdict: StepVerdict,
    /// Completed calls per second.
    pub throughput: Option<Estimate>,
    /// Completed calls per second that met the objective.
    pub goodput: Option<Estimate>,
    /// End-to-end latency from admission, in seconds.
    pub latency: LatencyQuantiles,
    /// Time from admission to the first token, in seconds.
    pub ttft: LatencyQuantiles,
    /// Time between tokens, in seconds.
    pub tpot: LatencyQuantiles,
    /// Mean number of slots held.
    pub in_flight: f64,
    /// Share of the time in which calls waited although slots were free and no rate limit or
    /// cool-down applied.
    pub gap_fraction: f64,
    /// Share of the time in which a rate limit or a cool-down held calls back.
    pub forbidden: f64,
}

/// Quantiles of a latency. A quantile is present only if there are enough samples to bound it from
/// above at 95 %: 59 for p95, 299 for p99.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyQuantiles {
    /// Number of samples.
    pub n: usize,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile. `None` if `n` is below 59.
    pub p95: Option<f64>,
    /// 99th percentile. `None` if `n` is below 299.
    pub p99: Option<f64>,
}
