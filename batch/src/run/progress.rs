//! The progress of a run.

use serde::Serialize;

use super::spend::Spend;

/// The progress of a run, or its final summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BatchProgress {
    /// Number of lines read. Blank lines do not count.
    pub read: u64,
    /// Number of the last line read, where blank lines count. 0 if none was read.
    pub line: u64,
    /// Number of lines that were not sent because a previous run has written their records, whether
    /// they were answered or failed.
    pub skipped: u64,
    /// Number of records of this run with a status from 200 to 299.
    pub good: u64,
    /// Number of other records of this run, including those of malformed lines.
    pub failed: u64,
    /// Reason of the last failed record of this run: the error message, or the status and the first
    /// 300 characters of the body. `None` if none has failed.
    pub last_failure: Option<String>,
    /// Number of lines that were not sent because they are not valid requests or repeat a
    /// `custom_id`.
    pub malformed: u64,
    /// Number of open calls: those that were handed to the gate and have not ended, and those that
    /// wait to be sent again after a rate limit or while the server is down.
    pub open: u64,
    /// Number of open calls that were not sent to the provider yet.
    pub waiting: u64,
    /// Number of open calls with a request at the provider.
    pub in_flight: u64,
    /// Time for which the server has been down in this run, in seconds: since then, no connection
    /// was established, or each request was rejected because of an overload. `None` if the server
    /// is not down, or if a request that was sent before is still open.
    pub down_seconds: Option<f64>,
    /// Time for which the provider has answered only with 429 in this run, in seconds. `None` if
    /// its last response was another one. Calls wait meanwhile, and the run does not end.
    pub rate_limited_seconds: Option<f64>,
    /// Status and start of the body of the last 429, while [`BatchProgress::rate_limited_seconds`]
    /// is set.
    pub rate_limit: Option<String>,
    /// Tokens and cost of the calls that have ended in this run. A call that was cancelled counts
    /// with the most that its requests can cost.
    pub spend: Spend,
    /// Time since the start of the run, in seconds.
    pub seconds: f64,
    /// Why the run reads no more lines, or `None` while it still reads lines.
    pub ended: Option<BatchEnd>,
}

/// How a run is asked to end early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// The run continues.
    #[default]
    No,
    /// The requests at the provider are finished.
    Finish,
    /// The requests at the provider are cancelled. Their lines get no record, and the provider may
    /// bill them. The records of calls that have ended are written.
    Cancel,
}

/// Why a run reads no more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchEnd {
    /// All lines were read.
    #[serde(rename = "whole")]
    Complete,
    /// A stop was requested before all lines were answered.
    Stopped,
    /// A stop was requested, and calls in flight were cancelled.
    Cancelled,
    /// The next request, or the retry of a request, could exceed a ceiling.
    Ceiling,
}
