//! How a call ended.

/// How a call ended. Each call has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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
    /// A deadline, a limit of silence, or a stalled reader ended the call.
    TimedOut,
    /// The exchange failed.
    Broken,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 7] = [
        Outcome::Completed,
        Outcome::Failed,
        Outcome::Refused,
        Outcome::Cancelled,
        Outcome::Truncated,
        Outcome::TimedOut,
        Outcome::Broken,
    ];

    /// Returns the label in metrics and in the log.
    pub fn as_str(self) -> &'static str {
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
