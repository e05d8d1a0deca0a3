//! What can go wrong.

use serde::{Deserialize, Serialize};

use super::load_dependent::{Drift, LimitRamp, Load, LoadGrowth, Overload};
use crate::config_error::{ConfigError, require};

/// Every fault is off by default.
///
/// Times are simulated seconds from the moment when these faults were set. The same keys in JSON for `POST
/// /sim/faults`; an unknown key is an error. Setting faults replaces all those before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Seed of everything drawn.
    pub seed: u64,
    /// Times in which every call gets a 429.
    pub rate_limit_windows: Vec<RateLimitWindow>,
    /// 429 for a call that finds this many in flight.
    pub concurrency_limit: Option<usize>,
    /// That limit is lower at first.
    pub limit_ramp: Option<LimitRamp>,
    /// 429 while load rises too quickly.
    pub load_growth: Option<LoadGrowth>,
    /// What too many in flight leave behind.
    pub overload: Option<Overload>,
    /// One change in mid-run.
    pub drift: Option<Drift>,
    /// The Retry-After of these 429s (not of windows and budgets, which have their own), in simulated seconds. Absent: no such header.
    pub limits_retry_after_s: Option<f64>,
    /// 429s of limits and budgets do not name what was exceeded: "Too many requests."
    pub vague: bool,
    /// vLLM's `--max-num-queued-reqs`: a call that finds this many waiting, over all engines, gets a 503
    /// without Retry-After, or, if it streams, a 200 with that error as its only event.
    pub max_num_queued_reqs: Option<usize>,
    /// Calls that get no headers for a while, or never.
    pub stall_before_headers: Option<Stall>,
    /// Streams that pause, or never go on.
    pub stall_mid_stream: Option<Stall>,
    /// Streams whose connection breaks.
    pub reset_mid_stream: Option<StreamCut>,
    /// Streams that end cleanly without their terminal event.
    pub truncate_stream: Option<StreamCut>,
    /// Engines that are slow at first.
    pub slow_start: Option<SlowStart>,
    /// A provider's budget of tokens (and requests) a minute.
    pub token_rate: Option<TokenRate>,
    /// Times in which nothing is served.
    pub outages: Vec<Outage>,
    /// Probability of a 500, 0 to 1.
    pub error_500: f64,
}

/// A time in which every call gets a 429.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitWindow {
    /// Begin, inclusive.
    pub from_s: f64,
    /// End, exclusive.
    pub until_s: f64,
    /// The `Retry-After` header: absent = what is left of the window, in the client's seconds, rounded up;
    /// `"none"` = no header; anything else verbatim (so that `"-1"` and dates can be sent).
    #[serde(default)]
    pub retry_after: Option<String>,
}

/// A pause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stall {
    /// Share of calls hit, 0 to 1. Default 1.
    pub probability: f64,
    /// Simulated seconds; absent = for ever.
    pub seconds: Option<f64>,
    /// Tokens sent before the pause (in mid-stream only). Default 0.
    pub after_tokens: u32,
}

/// A stream that breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamCut {
    /// Share of streams hit, 0 to 1. Default 1.
    pub probability: f64,
    /// Tokens sent before the end. Default 0. A shorter answer is left whole.
    pub after_tokens: u32,
}

/// Steps take `factor` times their time at first, falling linearly to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowStart {
    /// Until full speed.
    pub over_s: f64,
    /// At the start; 1 to 1,000.
    pub factor: f64,
}

/// A budget over time, refilled continuously, of tokens, of requests, or of both. Answers carry
/// `x-ratelimit-{limit,remaining,reset}-{tokens,requests}`; a call that does not fit gets a 429 with
/// `Retry-After` and `retry-after-ms`, in the client's seconds. Either can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRate {
    /// Tokens a (simulated) minute; absent = no limit.
    #[serde(default)]
    pub tokens_per_minute: Option<f64>,
    /// Requests a (simulated) minute; absent = no limit.
    #[serde(default)]
    pub requests_per_minute: Option<f64>,
    /// The most that idle time saves up, in seconds of the rate. Default 60.
    #[serde(default = "minute")]
    pub burst_s: f64,
    /// What a call costs.
    #[serde(default)]
    pub counts: TokenCounting,
    /// Whether answers carry the headers. Default true.
    #[serde(default = "yes")]
    pub headers: bool,
    /// Whether 429s say when to come back. Default true.
    #[serde(default = "yes")]
    pub retry_after: bool,
}

impl Default for TokenRate {
    /// One that limits nothing.
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

/// What a call costs in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCounting {
    /// The prompt and the most that may be generated, at arrival, as OpenAI counts.
    #[default]
    Reserved,
    /// The prompt at arrival, the generated tokens at the end, as Anthropic counts; the bucket may go below
    /// zero.
    Actual,
}

/// A time in which nothing is served.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Begin, inclusive.
    pub from_s: f64,
    /// End, exclusive.
    pub until_s: f64,
    /// How it shows.
    #[serde(default)]
    pub mode: OutageMode,
}

/// How an outage shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageMode {
    /// [`crate::ConnectionRefused`] in the virtual face; over HTTP, connections closed without an answer.
    #[default]
    Refuse,
    /// 503 at once.
    Unavailable,
    /// Requests are taken and never answered, `/health` and `/metrics` too, and streams that are open fall silent, for good: as vLLM after a SIGTERM with requests
    /// open. What comes after the outage is answered.
    Hang,
    /// The engine's process has died and its server has not: open streams end with an error 500 as an event, all else gets a 500, `/health` a 503. What the
    /// engines held is lost, their caches too.
    Dead,
    /// The server was killed: as `Refuse`, and what is open breaks. What the engines held is lost, their caches too.
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
    /// The first key whose value cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let share = |p: f64| (0.0..=1.0).contains(&p);
        // Longer than any run, short enough that no conversion overflows.
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
