//! How far a run is.

use serde::Serialize;

use super::spend::Spend;

/// How far a run is, and what it came to in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BatchProgress {
    /// Lines read, blank ones aside.
    pub read: u64,
    /// The number of the last of them.
    pub line: u64,
    /// Of those, answered by a run before.
    pub skipped: u64,
    /// Answered by this one.
    pub good: u64,
    /// Failed in this one, malformed ones among them.
    pub failed: u64,
    /// Lines that are no requests, or repeat a `custom_id`.
    pub malformed: u64,
    /// Calls that have not ended.
    pub open: u64,
    /// Those of them that were not sent yet.
    pub waiting: u64,
    /// What this run has taken.
    pub spend: Spend,
    /// How long it has gone on.
    pub seconds: f64,
    /// Why nothing more is read.
    pub ended: Option<BatchEnd>,
}

/// Why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchEnd {
    /// There is no more.
    Whole,
    /// Somebody asked for it.
    Stopped,
    /// More could go beyond a ceiling.
    Ceiling,
}
