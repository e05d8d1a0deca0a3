//! The outcome of a call.

/// How a call ended. Each call has exactly one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The response was complete.
    Completed,
    /// The upstream returned an error, by status or in the stream.
    Failed,
    /// Admission rejected the call.
    Refused,
    /// The caller cancelled the call.
    Cancelled,
    /// The response ended without the provider's terminal event.
    Truncated,
    /// A deadline or timeout passed, or the reader stopped reading.
    TimedOut,
    /// The exchange with the upstream failed.
    Broken,
}

impl Outcome {
    /// All outcomes.
    pub(crate) const ALL: [Outcome; 7] = [
        Outcome::Completed,
        Outcome::Failed,
        Outcome::Refused,
        Outcome::Cancelled,
        Outcome::Truncated,
        Outcome::TimedOut,
        Outcome::Broken,
    ];

    /// Returns the name of the outcome in metrics and in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
            Outcome::Cancelled => "cancelled",
            Outcome::Truncated => "truncated",
            Outcome::TimedOut => "timed_out",
            Outcome::Broken => "broken",
        }
    }
}
