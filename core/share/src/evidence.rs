//! Adaptive limits: what the members tell each other of their calls, and who runs the law.
//!
//! An adaptive limit needs to see all calls of an upstream. So one member, the *leader*, runs its
//! law for all: the others send it the events of their calls, and the broker divides the slots that
//! the leader has found. A *deputy* gets the same events, so that it knows as much when the leader
//! ends. Leader and deputy are the members that joined first, or that had these roles at an earlier
//! broker.

use serde::{Deserialize, Serialize};

/// The maximum number of events in one message.
pub const MAX_EVENTS: usize = 400;

/// What a member does for an adaptive limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitRole {
    /// The member sends the events of its calls, and follows the leader.
    #[default]
    Follower,
    /// The member also gets the events of all calls, and follows the leader until it replaces it.
    Deputy,
    /// The member gets the events of all calls, and its limit is the one that is divided.
    Leader,
}

impl LimitRole {
    /// Returns the role of the member at this position among the observers, or `None` if it is not
    /// among them.
    pub fn from_position(position: Option<usize>) -> Self {
        match position {
            Some(0) => Self::Leader,
            Some(_) => Self::Deputy,
            None => Self::Follower,
        }
    }

    /// Returns `true` if the member sees the events of its own calls only.
    pub fn is_follower(&self) -> bool {
        *self == Self::Follower
    }
}

/// The appointment of a member by the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appointment {
    /// What the member does.
    pub role: LimitRole,
    /// Identifies the leader and the deputy. When it changes, each member tells of all of its calls
    /// again.
    pub term: u64,
}

/// What happened to the calls of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
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
