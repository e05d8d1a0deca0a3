//! Results that the search derives from its observations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::FailureCause;

/// Share of the cap that must be in use for the cap to count as in full use. The check
/// `work_conserving` requires it while calls wait, and the report marks it with a line.
pub(crate) const FULL_USE_SHARE: f64 = 0.95;

/// An estimated value with its confidence interval. The level of the interval is
/// [`SearchSettings::confidence`](crate::SearchSettings::confidence).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Best estimate of the value.
    pub value: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
}

/// What limits the server's useful concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// The server rejects calls above a number of concurrent calls.
    ConcurrencyLimit,
    /// The server limits requests per minute.
    RequestRate,
    /// The server limits tokens per minute.
    TokenRate,
    /// A higher cap does not raise the server's throughput.
    Saturation,
    /// Above the cap, the engine's KV cache is full, so sequences are preempted and recomputed.
    KvCliff,
    /// This client could not keep a higher cap in use, so the server's limit is unknown.
    Client,
    /// Nothing limited the server up to
    /// [`SearchSettings::max_cap`](crate::SearchSettings::max_cap).
    NotReached,
}

/// Answer of a sweep: the recommended cap and the reason for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepAnswer {
    /// Smallest measured cap whose goodput is within the tolerance of the best goodput, or `None`
    /// if no cap can be recommended. In both cases, `because` states the reason.
    pub cap: Option<usize>,
    /// Confidence interval of the cap, both ends inclusive. `None` if `cap` is `None`.
    pub interval: Option<(usize, usize)>,
    /// Whether the true value may be above the interval, because the measurements show no upper
    /// bound.
    pub open_above: bool,
    /// What limits the server at the cap, or `None` if `cap` is `None`.
    pub binding: Option<Binding>,
    /// Whether repeated measurements led to the same cap. The search measures the cap and a
    /// neighbouring one in turn; if a rate limit determines the cap, it measures the rate
    /// repeatedly. A noisy measurement is confirmed only if the interval extends at most a quarter
    /// of the cap to either side. A cap that this client limits is never confirmed.
    pub confirmed: bool,
    /// Why this cap is recommended, or why none is, in one or two sentences for the user.
    pub because: String,
    /// Answered calls per second at the cap, or `None` if unknown.
    pub throughput: Option<Estimate>,
    /// Calls per second at the cap that met the latency objectives, or `None` if unknown. Equals
    /// the throughput without objectives.
    pub goodput: Option<Estimate>,
    /// Requests per minute that the server accepts, or `None` unless a limit on requests determines
    /// the cap, or a rate limit of unknown kind.
    pub rpm: Option<Estimate>,
    /// Input and output tokens per minute that the server accepts, or `None` unless a limit on
    /// tokens determines the cap, or a rate limit of unknown kind.
    pub tpm: Option<Estimate>,
    /// Remarks for the user, such as a server that became slower during the sweep. Usually empty.
    pub notes: Vec<String>,
}

/// Why the search measures a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To raise the cap until calls fail or goodput stops rising.
    Ramp,
    /// To find the answer between a usable cap and an unusable one.
    Narrow,
    /// To check that a cap that was measured before still behaves the same.
    Reference,
    /// To use up the quota that a rate limit has accumulated, so that later steps measure only its
    /// refill rate.
    Drain,
    /// To confirm the answer, alternating with a higher cap.
    Confirm,
}

/// Whether a step showed that the server serves as many concurrent calls as its cap allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum StepVerdict {
    /// The server serves the cap, because the share of failed attempts is acceptable.
    Accepted,
    /// Too many attempts failed at the cap. Contains the explanation.
    Rejected(String),
    /// The step shows nothing about the server, because this client or a rate limit kept slots
    /// free. Contains the explanation.
    Invalid(String),
    /// The step ended with too few answers, or before it was known whether the share of failures is
    /// acceptable. Contains the explanation.
    Undecided(String),
}

/// Result of one step: a period in which one cap was in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Number of the step, from 0.
    pub step: usize,
    /// Cap in force during the step.
    pub cap: usize,
    /// Why the search made the step.
    pub purpose: Purpose,
    /// Start of the step, in seconds since the sweep began.
    pub began: f64,
    /// End of the step, in seconds since the sweep began.
    pub ended: f64,
    /// Number of calls that were not evaluated, because they started before the cap was in full
    /// use.
    pub warm_up: usize,
    /// Number of calls that were evaluated.
    pub calls: usize,
    /// Number of attempts that were evaluated.
    pub attempts: usize,
    /// Number of failed attempts sent in the step, by cause. Causes without failures are absent.
    pub failures: BTreeMap<FailureCause, usize>,
    /// Whether the server serves the cap, with the explanation.
    #[serde(flatten)]
    pub verdict: StepVerdict,
    /// Answered calls per second, or `None` with fewer than eight answered calls.
    pub throughput: Option<Estimate>,
    /// Calls per second that met the latency objectives, or `None` with fewer than eight answered
    /// calls.
    pub goodput: Option<Estimate>,
    /// Time from admission to the end of a call, in seconds.
    pub latency: LatencyQuantiles,
    /// Time from admission to the first token, in seconds.
    pub ttft: LatencyQuantiles,
    /// Mean time between the tokens of a call, in seconds.
    pub tpot: LatencyQuantiles,
    /// Mean number of slots in use after the warm-up.
    pub in_flight: f64,
    /// Time for which the step was measured, in seconds: from the first full use of the cap to the
    /// end of the step. Excludes the time in which calls of an earlier, higher cap ended.
    #[serde(default)]
    pub measured_seconds: f64,
    /// Metrics of the inference engine during the step, or `None` if the engine reports none or the
    /// step was too short.
    #[serde(default)]
    pub engine: Option<EngineUse>,
    /// Share of the time after the warm-up, 0 to 1, in which slots were free although nothing
    /// limited the calls.
    pub gap_fraction: f64,
    /// Share of the time after the warm-up, 0 to 1, in which a rate limit, a cool-down or the limit
    /// on KV-cache memory kept slots free.
    pub forbidden: f64,
}

/// Metrics that the inference engine (vLLM's `/metrics`) reported during a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineUse {
    /// Mean number of requests in the engine's own queue.
    pub waiting: f64,
    /// Median number of requests that the engine ran.
    pub running: f64,
    /// Mean share of the KV cache in use, 0 to 1, or `None` if not reported.
    pub kv_usage: Option<f64>,
    /// Number of sequences that were preempted during the step, or `None` if not reported.
    pub preemptions: Option<u64>,
}

/// Quantiles of a duration, in seconds. The 95th and the 99th percentile are `None` if there are
/// too few samples: the maximum sample must exceed the true percentile with 95 % probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyQuantiles {
    /// Number of samples from which the quantiles are computed.
    pub n: usize,
    /// Median, or `None` without samples.
    pub p50: Option<f64>,
    /// 95th percentile, or `None` with fewer than 59 samples.
    pub p95: Option<f64>,
    /// 99th percentile, or `None` with fewer than 299 samples.
    pub p99: Option<f64>,
}
