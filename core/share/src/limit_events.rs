//! The events of calls that the members of an adaptive limit send to its observers. See
//! [`LimitRole`](crate::LimitRole).

use serde::{Deserialize, Serialize};

/// The maximum number of events in one message.
pub const MAX_EVENTS: usize = 400;

/// A batch of events of the calls of a member, for the observers of an adaptive limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitEvents {
    /// Whether earlier calls of the member must be forgotten: `events` are of all of its calls.
    pub restarts: bool,
    /// When the message was sent, in microseconds on a clock of the member. It tells a message that
    /// was late.
    pub sent_us: u64,
    /// What happened, in order. At most [`MAX_EVENTS`].
    pub events: Vec<CallEvent>,
}

/// What happened to a call of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEvent {
    /// The number of the call among all calls of the member.
    pub call: u64,
    /// The time since the event in microseconds, when the message is sent.
    pub age_us: u64,
    /// What happened.
    pub what: CallStep,
}

/// A step in the life of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStep {
    /// The call was sent.
    Sent(CallKind),
    /// The first token of the answer has arrived.
    FirstToken,
    /// The tokens of the answer cannot be observed. The answer has an expected length of `output`
    /// tokens.
    Unobservable {
        /// The expected number of output tokens, or 0 if unknown.
        output: u64,
    },
    /// The call has ended.
    Ended(Ended),
}

/// The properties of a call that determine its usual latency. Latencies are compared only between
/// calls of a similar kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallKind {
    /// Number of prompt tokens, or 0 if unknown.
    pub input: u64,
    /// Expected number of output tokens, or 0 if unknown.
    pub output: u64,
    /// Whether the response streams. Only streamed responses have a first token before their end.
    pub streams: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The caller's deadline passed before the answer began. It is evidence of overload only if
    /// similar calls usually take less time.
    DeadlinePassed,
    /// The call failed for a reason unrelated to the upstream's load.
    Failed,
}
