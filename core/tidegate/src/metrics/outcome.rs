//! The outcome of a call, as counted in metrics and written to the log of calls.

/// How a call ended. Each call has exactly one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The response was successful and complete.
    Completed,
    /// The upstream returned an error, by its HTTP status or as an event in the stream.
    Failed,
    /// Admission rejected the call.
    Refused,
    /// The caller dropped the future of the call, or its response body before the end had arrived.
    Cancelled,
    /// The response ended without the event that ends the provider's stream.
    Truncated,
    /// A deadline or timeout of the call passed, or the caller stopped reading the response.
    TimedOut,
    /// The exchange with the upstream failed, for example because the connection broke.
    Broken,
}

impl Outcome {
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
