//! How a call ended.

/// How a call ended. Each call has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a whole answer.
    Completed,
    /// With the upstream's error, by status or in the stream.
    Failed,
    /// Refused at the door.
    Refused,
    /// The caller went away.
    Cancelled,
    /// The answer broke off without the provider's end.
    Truncated,
    /// A deadline, a limit of silence, or a stalled reader ended it.
    TimedOut,
    /// The exchange broke.
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

    /// The label in metrics and the log.
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
