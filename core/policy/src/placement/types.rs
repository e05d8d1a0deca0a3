//! The values exchanged between a pool's policy and its callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_protocol::Class;
use tidegate_protocol::request::Affinity;
use tidegate_protocol::vllm::{EngineMetrics, Model};

use crate::ErrorKind;
use crate::outcome::{AttemptOutcome, FailureCause};

/// Identifies a replica within its pool. A replica that left and returned has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// The replica that a call was assigned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The replica's identifier.
    pub id: ReplicaId,
    /// The replica's URL: [`ReplicaConfig::url`](tidegate_config::ReplicaConfig::url).
    pub url: Arc<str>,
}

/// The result of polling a replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The health probe succeeded.
    ProbeOk,
    /// The health probe was answered with 5xx, or the exchange failed.
    ProbeFailed,
    /// The connection was refused: nothing listens there.
    ConnectRefused,
    /// The health probe was not answered in time.
    ProbeTimeout,
    /// The engine's metrics.
    Metrics(EngineMetrics),
    /// The metrics could not be read.
    MetricsUnreadable,
    /// The models that the replica serves.
    Models(Vec<Model>),
}

impl Observation {
    /// Returns what was polled.
    pub(super) fn kind(&self) -> PollKind {
        match self {
            Self::ProbeOk | Self::ProbeFailed | Self::ConnectRefused | Self::ProbeTimeout => PollKind::Health,
            Self::Metrics(_) | Self::MetricsUnreadable => PollKind::Load,
            Self::Models(_) => PollKind::Models,
        }
    }
}

/// A request to poll a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct PollRequest {
    /// The replica.
    pub to: ReplicaId,
    /// The replica's URL: [`ReplicaConfig::url`](tidegate_config::ReplicaConfig::url).
    pub url: Arc<str>,
    /// What to poll.
    pub kind: PollKind,
}

/// What is polled from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollKind {
    /// Health. Answered by [`Observation::ProbeOk`], `ProbeFailed`, `ConnectRefused` or
    /// `ProbeTimeout`.
    Health,
    /// Metrics. Answered by [`Observation::Metrics`] or `MetricsUnreadable`.
    Load,
    /// Models. Answered by [`Observation::Models`], or not at all.
    Models,
}

/// The polls that are due, and when the next one is due if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PollRequests {
    /// The requests that are due now.
    pub due: Vec<PollRequest>,
    /// When the next request is due. `None`: not before the next call.
    pub next: Option<Instant>,
}

/// What a call requires and prefers of its replica. Made once per call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// The model that the call names.
    pub model: Option<Arc<str>>,
    /// The prefixes and the session that the call shares with others.
    pub affinity: Affinity,
    /// Replicas that failed the call. They are avoided while there are others.
    pub avoid: Vec<ReplicaId>,
}

/// The expected size of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Prompt tokens.
    pub input: u64,
    /// Expected output tokens.
    pub output: u64,
}

/// How an attempt at a replica failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The replica has no room (503), and may have said for how long.
    Full(Option<Duration>),
    /// The replica limits the rate (429), and may have said for how long.
    Limited(Option<Duration>),
    /// The connection was refused.
    ConnectRefused,
    /// No connection was made, for a reason that may lie on the way (DNS, TLS, routes, timeouts).
    /// Nothing ran.
    Unreached,
    /// The exchange failed after it was sent, or the replica answered with another 5xx.
    Broke,
}

impl Fault {
    /// Returns the fault of the replica, or `None` if the outcome is none of its faults.
    ///
    /// `has_begun` is `true` if the response had begun: then only a broken response is a fault, and
    /// silence is not.
    pub fn from_outcome(outcome: &AttemptOutcome, has_begun: bool) -> Option<Self> {
        match outcome {
            AttemptOutcome::Rejected(verdict) => match verdict.class {
                _ if !verdict.retryable => None,
                Class::Overloaded => Some(Self::Full(outcome.retry_after())),
                Class::RateLimited => Some(Self::Limited(outcome.retry_after())),
                Class::ServerError | Class::Timeout => Some(Self::Broke),
                _ => None,
            },
            AttemptOutcome::Failed(failure) => match (&failure.kind, &failure.cause) {
                (ErrorKind::Transport | ErrorKind::Truncated, _) if has_begun => Some(Self::Broke),
                _ if has_begun => None,
                (_, FailureCause::ConnectRefused) => Some(Self::ConnectRefused),
                (kind, _) if kind.never_sent() => Some(Self::Unreached),
                _ => Some(Self::Broke),
            },
            AttemptOutcome::Accepted { .. } | AttemptOutcome::Cancelled(_) => None,
        }
    }
}
