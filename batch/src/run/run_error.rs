//! The errors that end a run.

use std::io;
use std::time::Duration;

use http::Uri;
use tokio::task::JoinError;

use crate::output::AnsweredLines;

/// Why a run failed. Records that were written remain, and the next run resumes from them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Reading the input failed.
    #[error("cannot read the input: {0}")]
    Input(#[from] io::Error),
    /// The receiver of the records was dropped, for example because writing failed.
    #[error("cannot write the output")]
    Output,
    /// The input line with this number has another text than when a previous run answered it.
    #[error(
        "line {0} of the input has changed since it was answered; write to another output, or start again with --overwrite"
    )]
    InputChanged(u64),
    /// The input line with this number has another text than when it failed in a previous run,
    /// whose file of failed lines contains it.
    #[error(
        "line {0} of the input has changed since it failed; pass --retry-failed to send the failed lines again"
    )]
    FailedLineChanged(u64),
    /// The number of consecutive failed calls reached
    /// [`BatchOptions::max_consecutive_failures`](super::BatchOptions::max_consecutive_failures).
    #[error(
        "{count} lines in a row failed, the last with: {last}. They are not in the output, and the next run sends them again; with --give-up-after 0, it writes all failures and does not stop"
    )]
    TooManyFailures {
        /// Number of consecutive failures.
        count: usize,
        /// Message of the last of these failures.
        last: String,
    },
    /// The server was down for 30 minutes.
    #[error(
        "the server has been down for {} minutes, and its last failure was: {last}. The answers so far are in the output, and the next run sends the other lines; with --give-up-after 0, a run waits as long as necessary",
        .down_for.as_secs() / 60
    )]
    ServerDown {
        /// Time for which the server has been down.
        down_for: Duration,
        /// Message of its last failure.
        last: String,
    },
    /// The base URL has no scheme or no host.
    #[error("{0} is not the base URL of an API")]
    InvalidBase(Uri),
    /// The task of a call panicked, which is a bug.
    #[error("a call panicked: {0}")]
    Panicked(#[from] JoinError),
}

impl RunError {
    /// Returns the error for an input line that has another text than its record in `answered`.
    pub(crate) fn changed_line(line: u64, answered: &AnsweredLines) -> Self {
        if answered.can_retry(line) { Self::FailedLineChanged(line) } else { Self::InputChanged(line) }
    }
}
