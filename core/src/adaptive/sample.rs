//! What the limit is told of a call.

use std::time::Instant;

/// What kind of call it is: calls are only held against their like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallKind {
    /// Tokens of its prompt; 0: not known.
    pub input: u64,
    /// Tokens that its answer is expected to have; 0: not known.
    pub output: u64,
    /// Whether its answer comes as a stream. Only then does it have a first token before its end.
    pub streams: bool,
}

/// A call in flight, as the limit knows it. Goes back by [`super::Limit::ended`], once.
#[derive(Debug)]
#[must_use = "a call that never ends holds its place for ever"]
pub struct Sample {
    pub(super) class: usize,
    /// Tokens that its answer is expected to have.
    pub(super) output: u64,
    /// Its number in its class's line, until it leaves it.
    pub(super) queue_number: Option<u64>,
    /// Whether it awaits its first token.
    pub(super) awaits_first_token: bool,
    /// Whether it has been judged.
    pub(super) judged: bool,
    pub(super) sent_at: Instant,
    /// Calls in flight when it was sent, with it.
    pub(super) in_flight: usize,
    /// When its first token came.
    pub(super) first_token_at: Option<Instant>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a whole answer of so many tokens (0: not known).
    Completed {
        /// Tokens of the answer.
        output: u64,
    },
    /// Its caller went away, or it was called back: says nothing of the upstream, but that it was late if it was by then.
    Cancelled,
    /// The upstream turned it away with a 429. `by_rate`: for a rate, as its headers, its Retry-After or the budgets say.
    Limited {
        /// See above.
        by_rate: bool,
    },
    /// The upstream turned it away for want of room (503, 529).
    Overloaded,
    /// No answer, or no first token, came in time.
    TimedOut,
    /// It failed for another reason, which says nothing of how busy the upstream is.
    Failed,
}
