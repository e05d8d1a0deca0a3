//! What a sweep observes. Times are in seconds since the sweep began.

use serde::{Deserialize, Serialize};

/// A completed exchange with the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptObservation {
    /// Time at which the request was sent.
    pub sent_at: f64,
    /// Time of the last byte, the failure or the cancellation.
    pub ended_at: f64,
    /// Number of open exchanges just after the request was sent, including this one.
    pub position: usize,
    /// `None`: it was answered.
    pub failure: Option<AttemptFailure>,
    /// Rate limits in the response headers.
    pub rates: ReportedRates,
}

/// Why an attempt or a call failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// The cause.
    pub cause: FailureCause,
    /// HTTP status, if there was one.
    pub status: Option<u16>,
    /// Delay that Retry-After asked for, in seconds.
    pub retry_after: Option<f64>,
    /// The limit that the server named, if any.
    pub hint: Option<LimitHint>,
}

/// Causes of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// 429.
    Limited,
    /// 503 or 529: the server is overloaded.
    Overloaded,
    /// Another 5xx, or an error event in a stream.
    Server,
    /// No response or no token in time.
    Timeout,
    /// No connection, or a connection that broke before the response.
    Connection,
    /// A stream that ended early.
    Truncated,
    /// Another 4xx: the request itself is rejected.
    Request,
}

/// The limit that the text or the type of an error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitHint {
    /// A rate of requests.
    Requests,
    /// A rate of tokens.
    Tokens,
    /// A number of concurrent calls.
    Concurrency,
}

/// Rate limits in response headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedRates {
    /// Requests per minute.
    pub requests: Option<ReportedRate>,
    /// Tokens per minute, of whatever kind the server counts.
    pub tokens: Option<ReportedRate>,
}

/// One rate limit in response headers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportedRate {
    /// The limit per minute.
    pub limit: Option<f64>,
    /// The remaining amount.
    pub remaining: Option<f64>,
}

/// A completed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallObservation {
    /// Index in the mix. The same index is the same work at each cap.
    pub work: usize,
    /// Step in which the call began.
    pub step: usize,
    /// Time at which the call was queued at the gate.
    pub queued_at: f64,
    /// Time at which the call first got a slot.
    pub admitted_at: f64,
    /// Time at which the call ended.
    pub ended_at: f64,
    /// Total time for which its attempts held slots, in seconds.
    pub slot_seconds: f64,
    /// Number of attempts.
    pub attempts: u32,
    /// Time from `admitted_at` to the first token, in seconds, including retries. Queueing is
    /// excluded, because the queue is the sweep's own backlog.
    pub ttft: Option<f64>,
    /// Mean time between tokens, in seconds.
    pub tpot: Option<f64>,
    /// Longest pause between two events of the stream after the first token, in seconds.
    pub longest_pause: Option<f64>,
    /// Input tokens, as counted by the server or otherwise estimated.
    pub input_tokens: u64,
    /// Output tokens, as counted by the server or otherwise the maximum requested.
    pub output_tokens: u64,
    /// Whether the server counted the tokens.
    pub counted: bool,
    /// Why the call failed, or `None` if the call was answered completely.
    pub failure: Option<AttemptFailure>,
}

/// The state at one moment. Sampled on every change, and at least ten times per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// Time of the sample.
    pub at: f64,
    /// The cap.
    pub cap: usize,
    /// Slots held.
    pub in_flight: usize,
    /// Calls waiting in the gate.
    pub waiting: usize,
    /// What holds the first waiting call back while slots are free.
    pub held_by: Option<BlockedBy>,
    /// Share of the available CPU time that this process used since the previous sample, or `None`
    /// if unknown.
    pub client_cpu: Option<f64>,
    /// Delay of this process's timers, in seconds.
    pub client_lag: f64,
    /// The engine's own metrics, if available.
    pub engine: Option<EngineObservation>,
}

/// What holds calls back while slots are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// A request rate that is configured or was reported by the server.
    Requests,
    /// A token rate that is configured or was reported by the server.
    Tokens,
    /// A Retry-After, an outage, or the recovery from one.
    CoolDown,
    /// Configured KV memory.
    Kv,
    /// Nothing: the calls are about to be sent.
    Nothing,
}

/// Metrics of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineObservation {
    /// Sequences preempted since the engine started.
    pub preemptions: Option<u64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Requests in the engine's own queue.
    pub waiting: Option<u64>,
}
