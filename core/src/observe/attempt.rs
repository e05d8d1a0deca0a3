//! The five stamps of an attempt, and how a call ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// One try of a call upstream.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// It asked for a slot.
    pub queued_at: Instant,
    /// It got one.
    pub admitted_at: Option<Instant>,
    /// Slots of the target held just then, its own included.
    pub in_flight: Option<usize>,
    /// The replica that it got it at, by its base URL, where its target is a pool.
    pub replica: Option<Arc<str>>,
    /// It was handed to the transport.
    pub sent_at: Option<Instant>,
    /// The first content, reasoning or tool-call delta came.
    pub first_token_at: Option<Instant>,
    /// Its slot went back.
    pub released_at: Option<Instant>,
    /// The upstream's status.
    pub status: Option<u16>,
    /// It failed, and the call sleeps so long before it queues again.
    pub backoff: Option<Duration>,
    /// Its answer streams, and is read on its way: only then is its first token seen.
    pub streams: bool,
    /// Output deltas seen in the stream.
    pub deltas: u64,
    /// The provider's own end was seen.
    pub complete: bool,
    /// An error event was seen in the stream.
    pub failed: bool,
}

impl Attempt {
    pub(crate) fn queued(now: Instant) -> Self {
        Self {
            queued_at: now,
            admitted_at: None,
            in_flight: None,
            replica: None,
            sent_at: None,
            first_token_at: None,
            released_at: None,
            status: None,
            backoff: None,
            streams: false,
            deltas: 0,
            complete: false,
            failed: false,
        }
    }
}

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
