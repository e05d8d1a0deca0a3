//! Inputs of the search: what the driver observes. Times are in seconds since the sweep began.

use serde::{Deserialize, Serialize};

/// An attempt (one exchange with the server) that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptObservation {
    /// Time at which the request was sent, in seconds since the sweep began.
    pub sent_at: f64,
    /// Time at which the last byte arrived, or the attempt failed or was cancelled, in seconds
    /// since the sweep began.
    pub ended_at: f64,
    /// Number of open exchanges just after the request was sent, including this one; at least 1.
    pub position: usize,
    /// Why the attempt failed, or `None` if it was answered completely.
    pub failure: Option<AttemptFailure>,
    /// Rate limits that the response headers reported.
    pub rates: ReportedRates,
}

/// Failure of an attempt, or of a call's last attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// Why the attempt failed.
    pub cause: FailureCause,
    /// HTTP status of the error response, or `None` if there was none, as after a timeout or a
    /// broken connection.
    pub status: Option<u16>,
    /// Delay of the `Retry-After` header in seconds, or `None` without the header.
    pub retry_after: Option<f64>,
    /// Kind of limit that the error message or an exhausted rate header names, or `None` if neither
    /// does.
    pub hint: Option<LimitHint>,
}

/// Class of an attempt's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// The server rejected the attempt with status 429.
    Limited,
    /// Status 503 or 529: the server is overloaded.
    Overloaded,
    /// A 5xx status other than 503 and 529, or an error event in a stream.
    Server,
    /// No response head or no token arrived within the timeout.
    Timeout,
    /// The connection could not be opened, or broke before the response head.
    Connection,
    /// The stream ended without its terminal event.
    Truncated,
    /// A 4xx status other than 429: the server rejects the request itself.
    Request,
}

/// Kind of limit that an error response or its rate headers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitHint {
    /// The error names a limit on requests per period.
    Requests,
    /// The error names a limit on tokens per period.
    Tokens,
    /// The error names a limit on concurrent calls.
    Concurrency,
}

/// Rate limits in the headers of one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedRates {
    /// Limit on requests, or `None` if no header reports one.
    pub requests: Option<ReportedRate>,
    /// Limit on tokens, or `None` if no header reports one. Total tokens if reported, otherwise
    /// input tokens, otherwise output tokens.
    pub tokens: Option<ReportedRate>,
}

/// One rate limit in response headers, which counts either requests or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportedRate {
    /// Requests or tokens per minute, or `None` if only the remaining amount was reported.
    pub limit: Option<f64>,
    /// Requests or tokens left in the current window of the limit, or `None` if not reported.
    pub remaining: Option<f64>,
}

/// A call that has ended, with all its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallObservation {
    /// Index of the call's request in the mix. Every step sends the requests of the mix in order,
    /// from index 0.
    pub work: usize,
    /// Number of the step in which the call was queued.
    pub step: usize,
    /// Time at which the call was queued at the gate, in seconds since the sweep began.
    pub queued_at: f64,
    /// Time at which the call's first attempt got a slot, in seconds since the sweep began.
    pub admitted_at: f64,
    /// Time at which the last slot of the call was released, in seconds since the sweep began.
    pub ended_at: f64,
    /// Total time for which the call's attempts occupied slots, in seconds.
    pub slot_seconds: f64,
    /// Number of attempts, including the first.
    pub attempts: u32,
    /// Time from `admitted_at` to the first token in seconds, including retries. Excludes the time
    /// in the queue, which the sweep itself keeps filled. `None` without a token.
    pub ttft: Option<f64>,
    /// Mean time between output tokens in seconds, or `None` if the call failed or returned fewer
    /// than two tokens.
    pub tpot: Option<f64>,
    /// Longest time in seconds between two consecutive events of the stream, from the first token
    /// on. `None` with fewer than two such events.
    pub longest_pause: Option<f64>,
    /// Input tokens as counted by the server, or as estimated if `counted` is `false`.
    pub input_tokens: u64,
    /// Output tokens as counted by the server. If `counted` is `false`, the number of output events
    /// of the stream, or the requested maximum if there was none.
    pub output_tokens: u64,
    /// Whether the server reported token counts.
    pub counted: bool,
    /// Failure of the last attempt, or `None` if the call was answered completely.
    pub failure: Option<AttemptFailure>,
}

/// Load of the gate at one time. Taken on every change of the load, and at least every 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// Time of the sample, in seconds since the sweep began.
    pub at: f64,
    /// Cap of the gate at that time.
    pub cap: usize,
    /// Number of requests that were sent and whose responses have not ended.
    pub in_flight: usize,
    /// Number of calls that wait in the gate.
    pub waiting: usize,
    /// Why the first waiting call does not get a free slot. `None` if no call waits or no slot is
    /// free.
    pub held_by: Option<BlockedBy>,
    /// Share of the available CPU time that this process used since the previous measurement, 0 to
    /// 1, or `None` if not measured.
    pub client_cpu: Option<f64>,
    /// Time in seconds by which the sampling timer fired late, or 0 if an event caused the sample.
    pub client_lag: f64,
    /// Share of the CPU time of this machine that all its programs used since the previous
    /// measurement, 0 to 1, or `None` if not measured.
    pub machine_cpu: Option<f64>,
    /// Metrics of the inference engine, or `None` if they are not polled or not available.
    pub engine: Option<EngineObservation>,
    /// Number of calls that were sent since the sweep began, including the preflight call.
    pub sent: usize,
}

/// Why calls wait although slots are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// A request rate limit that is configured or that response headers reported.
    Requests,
    /// A token rate limit that is configured or that response headers reported.
    Tokens,
    /// A cool-down after Retry-After or an outage, or the ramp that follows it.
    CoolDown,
    /// The target's configured limit on KV-cache memory.
    Kv,
    /// No limit: the gate is about to send the calls.
    Nothing,
}

/// Metrics of an inference engine (vLLM's `/metrics`). A value is `None` if the engine does not
/// report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineObservation {
    /// Number of sequences preempted since the engine started, summed over engines. `None` if the
    /// engine does not report it.
    pub preemptions: Option<u64>,
    /// Share of the KV cache in use, 0 to 1. `None` if the engine does not report it.
    pub kv_usage: Option<f64>,
    /// Number of requests in the engine's own queue. `None` if the engine does not report it.
    pub waiting: Option<u64>,
    /// Number of requests that the engine runs. `None` if the engine does not report it.
    pub running: Option<u64>,
}
