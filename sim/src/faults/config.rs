//! Configuration of the injected faults.

use serde::{Deserialize, Serialize};

use super::load_dependent::{Drift, LimitRamp, Load, LoadGrowth, Overload};
use crate::config_error::{ConfigError, require};

/// The faults to inject. Every fault is off by default.
///
/// Times are simulated seconds since these faults were set. `POST /sim/faults` takes the same keys
/// as JSON; unknown keys are errors. Setting faults replaces all previous faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Seed of all random draws.
    pub seed: u64,
    /// Time windows in which every call gets a 429.
    pub rate_limit_windows: Vec<RateLimitWindow>,
    /// Calls that find this many calls in flight get a 429.
    pub concurrency_limit: Option<usize>,
    /// Makes the concurrency limit rise from a lower value at the start.
    pub limit_ramp: Option<LimitRamp>,
    /// Rejects calls with a 429 while load rises too quickly.
    pub load_growth: Option<LoadGrowth>,
    /// Degrades the server for a while after an overload.
    pub overload: Option<Overload>,
    /// Changes the server once during the run.
    pub drift: Option<Drift>,
    /// `Retry-After` of the 429s of the concurrency limits above, in simulated seconds. Without it,
    /// the header is absent. Windows and rate budgets have their own setting.
    pub limits_retry_after_s: Option<f64>,
    /// Whether the 429s of limits and rate budgets only say "Too many requests.", without naming
    /// the exceeded limit.
    pub hide_limit_name: bool,
    /// vLLM's `--max-num-queued-reqs`: a call that finds this many waiting sequences, over all
    /// engines, gets a 503 without `Retry-After`, or a 200 with that error as its only event if the
    /// call streams.
    pub max_num_queued_reqs: Option<usize>,
    /// Delays the response headers of some calls, or withholds them forever.
    pub stall_before_headers: Option<Stall>,
    /// Pauses some streams, or stops them forever.
    pub stall_mid_stream: Option<Stall>,
    /// Breaks the connection of some streams.
    pub reset_mid_stream: Option<StreamCut>,
    /// Ends some streams cleanly without their terminal event.
    pub truncate_stream: Option<StreamCut>,
    /// Slows the engines down at the start.
    pub slow_start: Option<SlowStart>,
    /// A provider's token and request budget per minute.
    pub token_rate: Option<TokenRate>,
    /// Time windows in which nothing is served.
    pub outages: Vec<Outage>,
    /// Probability that a call gets a 500, 0 to 1.
    pub error_500: f64,
}

/// A time window in which every call gets a 429.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitWindow {
    /// Start in simulated seconds, inclusive.
    pub from_s: f64,
    /// End in simulated seconds, exclusive.
    pub until_s: f64,
    /// The `Retry-After` header. Absent: the rest of the window in the client's seconds, rounded
    /// up. `"none"`: no header. Any other text is sent verbatim, for example `"-1"` or a date.
    #[serde(default)]
    pub retry_after: Option<String>,
}

/// A pause that hits some calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stall {
    /// Share of calls that are hit, 0 to 1. Default 1.
    pub probability: f64,
    /// Length of the pause in simulated seconds. Absent: forever.
    pub seconds: Option<f64>,
    /// Number of tokens sent before the pause, for pauses within a stream. Default 0.
    pub after_tokens: u32,
}

/// An early end that hits some streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamCut {
    /// Share of streams that are hit, 0 to 1. Default 1.
    pub probability: f64,
    /// Number of tokens sent before the end. Default 0. A shorter answer is sent whole.
    pub after_tokens: u32,
}

/// A slow start: steps take `factor` times their normal time at first, falling linearly to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowStart {
    /// Time until full speed, in simulated seconds.
    pub over_s: f64,
    /// Factor at the start, 1 to 1,000.
    pub factor: f64,
}

/// Continuously refilled budgets of tokens, requests, or both.
///
/// Answers carry `x-ratelimit-{limit,remaining,reset}-{tokens,requests}`. A call that exceeds a
/// budget gets a 429 with `Retry-After` and `retry-after-ms`, in the client's seconds. Both kinds
/// of headers can be turned off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRate {
    /// Tokens per simulated minute. Absent: no limit.
    #[serde(default)]
    pub tokens_per_minute: Option<f64>,
    /// Requests per simulated minute. Absent: no limit.
    #[serde(default)]
    pub requests_per_minute: Option<f64>,
    /// Maximum saved budget, in seconds of the rate. Default 60.
    #[serde(default = "minute")]
    pub burst_s: f64,
    /// How the tokens of a call are counted.
    #[serde(default)]
    pub counts: TokenCounting,
    /// Whether answers carry the `x-ratelimit-*` headers. Default true.
    #[serde(default = "yes")]
    pub headers: bool,
    /// Whether 429s carry a retry delay. Default true.
    #[serde(default = "yes")]
    pub retry_after: bool,
}

impl Default for TokenRate {
    /// Returns a setting without any limit.
    fn default() -> Self {
        Self {
            tokens_per_minute: None,
            requests_per_minute: None,
            burst_s: minute(),
            counts: TokenCounting::default(),
            headers: true,
            retry_after: true,
        }
    }
}

fn yes() -> bool {
    true
}

fn minute() -> f64 {
    60.0
}

/// How the tokens of a call are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCounting {
    /// The prompt and the maximum output, charged on arrival, as OpenAI counts.
    #[default]
    Reserved,
    /// The prompt, charged on arrival, and the generated tokens, charged at the end, as Anthropic
    /// counts. The budget may become negative.
    Actual,
}

/// A time window in which nothing is served.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Start in simulated seconds, inclusive.
    pub from_s: f64,
    /// End in simulated seconds, exclusive.
    pub until_s: f64,
    /// How the outage appears to callers.
    #[serde(default)]
    pub mode: OutageMode,
}

/// How an outage appears to callers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageMode {
    /// Connections are refused: [`crate::ConnectionRefused`] in process, a closed connection over
    /// HTTP.
    #[default]
    Refuse,
    /// Every request gets a 503 at once.
    Unavailable,
    /// Requests are accepted and never answered, including `/health` and `/metrics`, and open
    /// streams stop forever, as in vLLM after a SIGTERM with open requests. Requests after the
    /// outage are answered.
    Hang,
    /// The engine process is dead, but its server is not. Open streams end with a 500 as an error
    /// event, `/health` gets a 503, and other requests get a 500. The engines lose their sequences
    /// and caches.
    Dead,
    /// The server is killed: as `Refuse`, and open connections break. The engines lose their
    /// sequences and caches.
    Kill,
}

impl Default for Stall {
    fn default() -> Self {
        Self { probability: 1.0, seconds: None, after_tokens: 0 }
    }
}

impl Default for StreamCut {
    fn default() -> Self {
        Self { probability: 1.0, after_tokens: 0 }
    }
}

impl Faults {
    /// Checks every value.
    ///
    /// # Errors
    ///
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let share = |p: f64| (0.0..=1.0).contains(&p);
        // Longer than any run, and short enough that no conversion overflows.
        let time = |s: f64| (0.0..=1e9).contains(&s);
        for w in &self.rate_limit_windows {
            let ordered = time(w.from_s) && time(w.until_s) && w.from_s <= w.until_s;
            require("faults.rate_limit_windows", "from_s to until_s must be a time from 0 on", ordered)?;
            let header = w.retry_after.as_deref().unwrap_or_default();
            let legal = http::HeaderValue::from_str(header).is_ok();
            require("faults.rate_limit_windows.retry_after", "is no legal header value", legal)?;
        }
        for o in &self.outages {
            let ordered = time(o.from_s) && time(o.until_s) && o.from_s <= o.until_s;
            require("faults.outages", "from_s to until_s must be a time from 0 on", ordered)?;
        }
        for (key, stall) in [
            ("faults.stall_before_headers", &self.stall_before_headers),
            ("faults.stall_mid_stream", &self.stall_mid_stream),
        ] {
            let Some(stall) = stall else { continue };
            require(key, "probability must be 0 to 1", share(stall.probability))?;
            require(key, "seconds must be 0 to 1e9", stall.seconds.is_none_or(time))?;
        }
        for (key, cut) in [
            ("faults.reset_mid_stream", &self.reset_mid_stream),
            ("faults.truncate_stream", &self.truncate_stream),
        ] {
            require(key, "probability must be 0 to 1", cut.is_none_or(|c| share(c.probability)))?;
        }
        if let Some(slow) = &self.slow_start {
            require("faults.slow_start.over_s", "must be 0 to 1e9", time(slow.over_s))?;
            require("faults.slow_start.factor", "must be 1 to 1000", (1.0..=1000.0).contains(&slow.factor))?;
        }
        if let Some(rate) = &self.token_rate {
            let rate_of = |r: f64| r > 0.0 && r <= 1e12;
            let tokens = rate.tokens_per_minute.is_none_or(rate_of);
            require("faults.token_rate.tokens_per_minute", "must be above 0", tokens)?;
            let requests = rate.requests_per_minute.is_none_or(rate_of);
            require("faults.token_rate.requests_per_minute", "must be above 0", requests)?;
            let burst = rate.burst_s > 0.0 && rate.burst_s <= 1e6;
            require("faults.token_rate.burst_s", "must be above 0, at most 1e6", burst)?;
        }
        self.load().validate()?;
        let retry_after = self.limits_retry_after_s.is_none_or(time);
        require("faults.limits_retry_after_s", "must be 0 to 1e9", retry_after)?;
        require("faults.error_500", "must be 0 to 1", share(self.error_500))
    }

    pub(super) fn load(&self) -> Load {
        Load {
            limit: self.concurrency_limit,
            ramp: self.limit_ramp,
            growth: self.load_growth,
            overload: self.overload,
            drift: self.drift,
        }
    }
}
