//! Descriptions of a call for the adaptive limit: its kind, its sample while it is in flight, and
//! how it ended.

use std::time::Instant;

use tidegate_protocol::Class;

use super::latency_class::is_streaming;
use crate::{ErrorKind, outcome::AttemptOutcome};

/// The properties of a call that determine its usual latency. Latencies are compared only between
/// calls of a similar kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallKind {
    /// Number of prompt tokens, or 0 if unknown.
    pub input: u64,
    /// Expected number of output tokens, or 0 if unknown.
    pub output: u64,
    /// Whether the response streams. Only streamed responses have a first token before their end.
    pub streams: bool,
}

/// When a call was sent, and how many calls were in flight then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) at: Instant,
    /// Number of calls in flight just after the call was sent, including the call itself.
    pub(super) in_flight: usize,
}

/// A call in flight. Pass it once to [`Limit::on_ended`](super::Limit::on_ended).
#[derive(Debug)]
#[must_use = "a call that never ends is counted as in flight for ever"]
pub struct Sample {
    /// Index of the call's latency class: see
    /// [`class_of`](super::latency_class::class_of).
    pub(super) class: usize,
    /// Expected output tokens, or 0 if unknown.
    pub(super) output: u64,
    /// Number that identifies the call among the awaiting calls of its class. `None` after its
    /// first token or its end, and for calls that cannot be overdue.
    pub(super) queue_number: Option<u64>,
    /// Whether the call was already counted as evidence.
    pub(super) judged: bool,
    pub(super) sent: Sent,
    /// Work before the first token, in tokens of prefill. Zero if the call does not stream.
    pub(super) work: u64,
    /// Sum of that work over all calls that awaited their first token when this one was sent,
    /// itself included.
    pub(super) awaiting_work: u64,
    /// Time of the first token, or `None` if none was observed.
    pub(super) first_token_at: Option<Instant>,
}

impl Sample {
    /// Returns the work before the first token, in tokens of prefill. Zero if the call does not stream.
    pub fn first_token_work(&self) -> u64 {
        self.work
    }

    /// Returns `true` if the call streams and its first token has not arrived.
    pub(super) fn awaits_first_token(&self) -> bool {
        is_streaming(self.class) && self.first_token_at.is_none()
    }

    /// Returns the seconds from the sending of the call to `now`.
    pub(super) fn seconds_until(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.sent.at).as_secs_f64()
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The response was complete.
    Completed {
        /// Number of output tokens, or 0 if unknown.
        output: u64,
    },
    /// The caller cancelled the call. The call is not used as a sample, unless it was already
    /// overdue.
    Cancelled,
    /// The upstream rejected the call with a 429.
    Limited {
        /// Whether the 429 is about a rate, according to its headers, its Retry-After or the
        /// budgets, and not about too many concurrent calls. A 429 about a rate does not change the
        /// limit.
        by_rate: bool,
    },
    /// The upstream rejected the call for lack of capacity (503, 529).
    Overloaded,
    /// No response or no first token arrived before its timeout.
    TimedOut,
    /// The call failed for a reason unrelated to the upstream's load.
    Failed,
}

impl Ended {
    /// Returns how an attempt ended, or `None` if it was accepted, so that its response continues.
    ///
    /// `has_token` is `true` if the first token has arrived: a timeout after it is not evidence of
    /// overload. `is_by_rate` is called for a 429 only. It returns `true` if the 429 is about a
    /// rate, and `false` if it is about too many concurrent calls.
    pub fn from_outcome(
        outcome: &AttemptOutcome,
        has_token: bool,
        is_by_rate: impl FnOnce() -> bool,
    ) -> Option<Self> {
        match outcome {
            AttemptOutcome::Accepted { .. } => None,
            AttemptOutcome::Rejected(verdict) => Some(match verdict.class {
                Class::RateLimited => Self::Limited { by_rate: is_by_rate() },
                Class::Overloaded => Self::Overloaded,
                Class::Timeout => Self::TimedOut,
                _ => Self::Failed,
            }),
            AttemptOutcome::Failed(failure) => Some(match failure.kind {
                ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout if !has_token => Self::TimedOut,
                _ => Self::Failed,
            }),
            AttemptOutcome::Cancelled(_) => Some(Self::Cancelled),
        }
    }
}
