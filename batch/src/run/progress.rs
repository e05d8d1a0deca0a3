//! Progress of a run.

use serde::Serialize;

use super::spend::Spend;

/// Progress of a run, and its final summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BatchProgress {
    /// Lines read, without blank lines.
    pub read: u64,
    /// Number of the last line read.
    pub line: u64,
    /// Lines skipped because a previous run answered them.
    pub skipped: u64,
    /// Lines answered successfully by this run.
    pub good: u64,
    /// Lines that failed in this run, including malformed lines.
    pub failed: u64,
    /// Lines that are not valid requests, or repeat a `custom_id`.
    pub malformed: u64,
    /// Calls that have not ended.
    pub open: u64,
    /// Calls that were not sent yet.
    pub waiting: u64,
    /// Usage of this run.
    pub spend: Spend,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// Why no more lines are read.
    pub ended: Option<BatchEnd>,
}

/// Why no more lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchEnd {
    /// The input has ended.
    Whole,
    /// A stop was requested.
    Stopped,
    /// Another call could exceed a ceiling.
    Ceiling,
}
