//! Calls as the adaptive limit sees them.

use std::time::Instant;

/// The kind of a call. Latencies are compared only between calls of a similar kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallKind {
    /// Prompt tokens, or 0 if unknown.
    pub input: u64,
    /// Expected output tokens, or 0 if unknown.
    pub output: u64,
    /// Whether the response streams. Only streamed responses have a first token before their end.
    pub streams: bool,
}

/// A call in flight. Return it once with [`Limit::on_ended`](super::Limit::on_ended).
#[derive(Debug)]
#[must_use = "a call that never ends holds its place for ever"]
pub struct Sample {
    pub(super) class: usize,
    /// Expected output tokens.
    pub(super) output: u64,
    /// Number of the call among the awaiting calls of its class, until it is answered.
    pub(super) queue_number: Option<u64>,
    /// Whether the call awaits its first token.
    pub(super) awaits_first_token: bool,
    /// Whether the call was counted as evidence.
    pub(super) judged: bool,
    pub(super) sent_at: Instant,
    /// Number of calls in flight when this call was sent, including it.
    pub(super) in_flight: usize,
    /// Time of the first token.
    pub(super) first_token_at: Option<Instant>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The response was complete.
    Completed {
        /// Output tokens, or 0 if unknown.
        output: u64,
    },
    /// The caller cancelled the call. This says nothing about the upstream, unless the call was
    /// already overdue.
    Cancelled,
    /// The upstream rejected the call with a 429.
    Limited {
        /// Whether the 429 is about a rate, according to its headers, its Retry-After or the
        /// budgets.
        by_rate: bool,
    },
    /// The upstream rejected the call for lack of capacity (503, 529).
    Overloaded,
    /// No response or no first token arrived in time.
    TimedOut,
    /// The call failed for a reason unrelated to the upstream's load.
    Failed,
}
