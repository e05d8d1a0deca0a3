//! Configuration of the injected faults.

use serde::{Deserialize, Serialize};

use super::load_dependent::{Drift, LimitRamp, LoadFaults, LoadGrowth, Overload};
use crate::config_error::{ConfigError, require};

/// The faults to inject. Every fault is off by default.
///
/// Times are in simulated seconds since these faults were set, from 0 to 1e9. `POST /sim/faults`
/// takes the same keys as JSON; an unknown key is an error. Setting faults replaces all previous
/// faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Seed of the generator for all random draws. Default 0.
    pub seed: u64,
    /// Time windows in which every call gets a 429. Default none.
    pub rate_limit_windows: Vec<RateLimitWindow>,
    /// Maximum number of calls in flight. A call that would exceed it gets a 429. `None`: no limit.
    pub concurrency_limit: Option<usize>,
    /// Makes `concurrency_limit` rise from a lower value at the start. `None`: the limit is
    /// constant.
    pub limit_ramp: Option<LimitRamp>,
    /// Rejects calls with a 429 while load rises too quickly. `None`: load may rise at any speed.
    pub load_growth: Option<LoadGrowth>,
    /// Slows the server down, or lowers its concurrency limit, for some time after an overload.
    /// `None`: an overload has no consequences.
    pub overload: Option<Overload>,
    /// Changes speed or concurrency limit once during the run. `None`: no change.
    pub drift: Option<Drift>,
    /// `Retry-After` of the 429s that `concurrency_limit`, `limit_ramp`, `load_growth`, `overload`
    /// and `drift` cause, in simulated seconds from 0 to 1e9. `None`: these 429s have no such
    /// header.
    pub limits_retry_after_s: Option<f64>,
    /// Whether the 429s of concurrency limits and rate budgets only say "Too many requests.",
    /// without naming the exceeded limit. Default `false`.
    pub hide_limit_name: bool,
    /// vLLM's `--max-num-queued-reqs`. A call that arrives while at least this number of sequences
    /// wait, over all engines, is rejected: with a 503 without `Retry-After`, or if it streams,
    /// with a 200 whose only event is that error. `None`: no limit.
    pub max_num_queued_reqs: Option<usize>,
    /// Delays the response headers of accepted calls. `None`: no delay.
    pub stall_before_headers: Option<Stall>,
    /// Pauses accepted streams. `None`: no pause.
    pub stall_mid_stream: Option<Stall>,
    /// Breaks the connection of accepted streams. `None`: never.
    pub reset_mid_stream: Option<StreamCut>,
    /// Ends accepted streams without their last events, but without an error. `None`: never.
    pub truncate_stream: Option<StreamCut>,
    /// Slows the engines down at the start. `None`: full speed from the start.
    pub slow_start: Option<SlowStart>,
    /// A provider's budgets of tokens and requests per minute. `None`: no budgets.
    pub token_rate: Option<TokenRate>,
    /// Time windows in which the server does not work. Default none.
    pub outages: Vec<Outage>,
    /// Probability that a call gets a 500, from 0 to 1. Default 0.
    pub error_500: f64,
}

/// A time window in which every call gets a 429.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitWindow {
    /// Start, inclusive, in simulated seconds since the faults were set.
    pub from_s: f64,
    /// End, exclusive, in simulated seconds since the faults were set.
    pub until_s: f64,
    /// Value of the `Retry-After` header. `None`: the seconds until the end of the window on the
    /// client's clock, rounded up. `"none"`: no header. Any other text is sent verbatim, for
    /// example `"-1"` or a date.
    #[serde(default)]
    pub retry_after: Option<String>,
}

/// A pause that affects a random share of calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stall {
    /// Probability that a call is affected, from 0 to 1. Default 1.
    pub probability: f64,
    /// Length of the pause in simulated seconds, from 0 to 1e9. `None`, the default: forever.
    pub seconds: Option<f64>,
    /// Number of tokens that a stream sends before it pauses. An answer with fewer tokens has no
    /// pause. Default 0. Ignored by [`Faults::stall_before_headers`].
    pub after_tokens: u32,
}

/// An early end that affects a random share of streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamCut {
    /// Probability that a stream is affected, from 0 to 1. Default 1.
    pub probability: f64,
    /// Number of tokens that a stream sends before it ends. An answer with fewer tokens is sent
    /// whole. Default 0.
    pub after_tokens: u32,
}

/// Slow engines at the start. A step takes `factor` times its normal time at first. The factor
/// falls linearly to 1 within `over_s`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowStart {
    /// Time until the factor is 1, in simulated seconds from 0 to 1e9.
    pub over_s: f64,
    /// Factor on the time of steps at the start, from 1 to 1,000.
    pub factor: f64,
}

/// Budgets of tokens, requests, or both, that are refilled continuously.
///
/// Answers have the headers `x-ratelimit-{limit,remaining,reset}-{tokens,requests}`, or in
/// Anthropic's API `anthropic-ratelimit-{tokens,requests}-{limit,remaining,reset}`. A call that
/// exceeds a budget gets a 429 with the headers `Retry-After` and, except in Anthropic's API,
/// `retry-after-ms`. Times in headers are on the client's clock. Each of the two groups of headers
/// can be turned off. In Gemini's API, no answer has such headers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRate {
    /// Tokens per simulated minute; above 0, at most 1e12. `None`, the default: no token budget.
    #[serde(default)]
    pub tokens_per_minute: Option<f64>,
    /// Requests per simulated minute; above 0, at most 1e12. `None`, the default: no request
    /// budget.
    #[serde(default)]
    pub requests_per_minute: Option<f64>,
    /// Maximum unused budget, as the number of seconds that it takes to refill it; above 0, at most
    /// 1e6. Each budget is full at first. Default 60.
    #[serde(default = "minute")]
    pub burst_s: f64,
    /// Which tokens of a call the token budget counts. Default [`TokenCounting::Reserved`].
    #[serde(default)]
    pub counts: TokenCounting,
    /// Whether answers carry the headers with the state of the budgets. Default `true`.
    #[serde(default = "yes")]
    pub headers: bool,
    /// Whether 429s have the headers with the retry delay. Default `true`.
    #[serde(default = "yes")]
    pub retry_after: bool,
}

impl Default for TokenRate {
    /// Returns a configuration without any budget.
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

/// Which tokens of a call the token budget counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCounting {
    /// The prompt and the maximum output that the request allows, both when the call arrives, as
    /// OpenAI counts.
    #[default]
    Reserved,
    /// The prompt when the call arrives, and the generated tokens when it ends, as Anthropic
    /// counts. The budget may become negative.
    Actual,
}

/// A time window in which the server does not work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Start, inclusive, in simulated seconds since the faults were set.
    pub from_s: f64,
    /// End, exclusive, in simulated seconds since the faults were set.
    pub until_s: f64,
    /// What callers see during the outage.
    #[serde(default)]
    pub mode: OutageMode,
}

/// What callers see during an outage. The control API under `/sim/` works in every mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageMode {
    /// Connections are refused: over HTTP, they are closed without a response. Calls in process
    /// return [`crate::ConnectionError::Refused`]. Open streams continue.
    #[default]
    Refuse,
    /// Every request gets a 503 at once. Open streams continue.
    Unavailable,
    /// Requests, including `/health` and `/metrics`, are accepted but never answered, and open
    /// streams stop forever, as in vLLM after a SIGTERM with open requests. Requests that arrive
    /// after the outage are answered.
    Hang,
    /// The engine process is dead, but the HTTP server in front of it is not. Open streams end with
    /// a 500 as an error event, `/health` gets a 503, and other requests get a 500. The engines
    /// lose their sequences and caches, and the metrics restart.
    Dead,
    /// The server process is killed: connections are refused as in [`OutageMode::Refuse`], and open
    /// connections break. The engines lose their sequences and caches, and the metrics restart.
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
    /// Returns an error with the first key whose value is invalid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let share = |p: f64| (0.0..=1.0).contains(&p);
        // Longer than any run, and short enough that no conversion overflows.
        let time = |s: f64| (0.0..=1e9).contains(&s);
        for w in &self.rate_limit_windows {
            let ordered = time(w.from_s) && time(w.until_s) && w.from_s <= w.until_s;
            require("faults.rate_limit_windows", "must have 0 <= from_s <= until_s <= 1e9", ordered)?;
            let header = w.retry_after.as_deref().unwrap_or_default();
            let legal = http::HeaderValue::from_str(header).is_ok();
            require("faults.rate_limit_windows.retry_after", "must be a valid header value", legal)?;
        }
        for o in &self.outages {
            let ordered = time(o.from_s) && time(o.until_s) && o.from_s <= o.until_s;
            require("faults.outages", "must have 0 <= from_s <= until_s <= 1e9", ordered)?;
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
        self.load_faults().validate()?;
        let retry_after = self.limits_retry_after_s.is_none_or(time);
        require("faults.limits_retry_after_s", "must be 0 to 1e9", retry_after)?;
        require("faults.error_500", "must be 0 to 1", share(self.error_500))
    }

    pub(super) fn load_faults(&self) -> LoadFaults {
        LoadFaults {
            limit: self.concurrency_limit,
            ramp: self.limit_ramp,
            growth: self.load_growth,
            overload: self.overload,
            drift: self.drift,
        }
    }
}
