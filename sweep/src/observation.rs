//! What a sweep sees. Times are seconds since it began.

use serde::{Deserialize, Serialize};

/// One exchange with the server that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptObservation {
    /// When it was sent.
    pub sent_at: f64,
    /// When its last byte came, it failed, or it was given up.
    pub ended_at: f64,
    /// Exchanges open just after it was sent, itself included.
    pub position: usize,
    /// `None`: it was answered.
    pub failure: Option<AttemptFailure>,
    /// What the head of its answer told of rates.
    pub rates: ReportedRates,
}

/// Why an attempt, or at last a call, failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// Its kind.
    pub cause: FailureCause,
    /// The status, where there was one.
    pub status: Option<u16>,
    /// What Retry-After asked for, in seconds.
    pub retry_after: Option<f64>,
    /// What the server said of it, as far as it names a limit: see [`LimitHint`].
    pub hint: Option<LimitHint>,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// 429.
    Limited,
    /// 503, 529: no room.
    Overloaded,
    /// Another 5xx, or an error as an event.
    Server,
    /// No answer, or no token, in time.
    Timeout,
    /// No connection, or one that broke before an answer.
    Connection,
    /// A stream that ended before its end.
    Truncated,
    /// Another 4xx: the request itself.
    Request,
}

/// What the text or the type of an error names as the limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitHint {
    /// Requests over time.
    Requests,
    /// Tokens over time.
    Tokens,
    /// So many at once.
    Concurrency,
}

/// Rate limits as an answer's headers told them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedRates {
    /// Requests a minute.
    pub requests: Option<ReportedRate>,
    /// Tokens a minute, of whatever kind is counted.
    pub tokens: Option<ReportedRate>,
}

/// One rate limit as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportedRate {
    /// The limit, a minute.
    pub limit: Option<f64>,
    /// What is left.
    pub remaining: Option<f64>,
}

/// One call that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallObservation {
    /// Its place in the mix: the same place is the same work at each cap.
    pub work: usize,
    /// The step that it was begun in.
    pub step: usize,
    /// When it came to the gate.
    pub queued_at: f64,
    /// When it first had a slot.
    pub admitted_at: f64,
    /// When it ended.
    pub ended_at: f64,
    /// How long its attempts held slots, all together.
    pub slot_seconds: f64,
    /// How many attempts it took.
    pub attempts: u32,
    /// From `admitted_at` to the first token: the queue of a sweep is the sweep's own, so that it does not count, and retries do.
    pub ttft: Option<f64>,
    /// Between tokens, in the mean.
    pub tpot: Option<f64>,
    /// The longest silence between two events of its stream after the first token.
    pub longest_pause: Option<f64>,
    /// As the server counted; else as it was asked.
    pub input_tokens: u64,
    /// As the server counted; else as it was asked.
    pub output_tokens: u64,
    /// Whether the server counted them.
    pub counted: bool,
    /// `None`: it was answered whole.
    pub failure: Option<AttemptFailure>,
}

/// The state of things at one moment; one is told each time something changes, and at least ten times a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// When.
    pub at: f64,
    /// Slots in force.
    pub cap: usize,
    /// Slots held.
    pub in_flight: usize,
    /// Calls that wait in the gate.
    pub waiting: usize,
    /// While calls wait and slots are free: what holds the first of them back.
    pub held_by: Option<BlockedBy>,
    /// The share of what processors this process may use that it used since the pulse before; `None` where it cannot be told.
    pub client_cpu: Option<f64>,
    /// How late this process' timers ran.
    pub client_lag: f64,
    /// What the engine's own metrics say, where it has any.
    pub engine: Option<EngineObservation>,
}

/// What holds calls back while slots are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// A rate of requests that is configured, or that the server told.
    Requests,
    /// A rate of tokens, likewise.
    Tokens,
    /// A Retry-After, an outage, or the way back from one.
    CoolDown,
    /// Memory (KV) that is configured.
    Kv,
    /// Nothing that the gate knows of: they are about to go.
    Nothing,
}

/// What an engine says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineObservation {
    /// Sequences thrown out of memory since it started.
    pub preemptions: Option<u64>,
    /// Of its memory for keys and values, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Requests in its own queue.
    pub waiting: Option<u64>,
}
