//! Arguments and results of [`Placement`](super::Placement): replicas, polls, calls and faults.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_protocol::vllm::{EngineMetrics, Model};
use tidegate_protocol::{Class, request::Affinity};

use crate::ErrorKind;
use crate::outcome::{AttemptOutcome, FailureCause};

/// Identifier of a replica within its pool. A replica that left and joined again has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// Identifier and URL of the replica that a call was assigned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The replica's identifier.
    pub id: ReplicaId,
    /// The replica's base URL: [`ReplicaConfig::url`](tidegate_config::ReplicaConfig::url).
    pub url: Arc<str>,
}

/// The result of polling a replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The health probe was answered with any status below 500.
    ProbeOk,
    /// The health probe was answered with a 5xx status, or the exchange failed after the
    /// connection was made.
    ProbeFailed,
    /// The connection of the health probe was refused: no process listens at the URL.
    ConnectRefused,
    /// The health probe was not answered in time, or no connection was made although none was
    /// refused (DNS, TLS, routes).
    ProbeTimeout,
    /// The load poll returned the engine's metrics.
    Metrics(EngineMetrics),
    /// The load poll failed, or its answer could not be read.
    MetricsUnreadable,
    /// The model poll returned the models that the replica serves. Empty: the replica is still
    /// loading.
    Models(Vec<Model>),
    /// The model poll was answered with this status, which is 401 if the replica requires another
    /// credential, or 200 if the answer is not a list of models.
    ModelsUnreadable(u16),
}

impl Observation {
    /// Returns the kind of poll that has this result.
    pub(super) fn kind(&self) -> PollKind {
        match self {
            Self::ProbeOk | Self::ProbeFailed | Self::ConnectRefused | Self::ProbeTimeout => PollKind::Health,
            Self::Metrics(_) | Self::MetricsUnreadable => PollKind::Load,
            Self::Models(_) | Self::ModelsUnreadable(_) => PollKind::Models,
        }
    }
}

/// A request to poll one replica. Report the result to
/// [`Placement::observe`](super::Placement::observe).
#[derive(Clone, Debug, PartialEq)]
pub struct PollRequest {
    /// The replica's identifier.
    pub to: ReplicaId,
    /// The replica's base URL: [`ReplicaConfig::url`](tidegate_config::ReplicaConfig::url).
    pub url: Arc<str>,
    /// What to poll.
    pub kind: PollKind,
}

/// What a poll asks a replica for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollKind {
    /// The health probe. Its results are [`Observation::ProbeOk`], [`Observation::ProbeFailed`],
    /// [`Observation::ConnectRefused`] and [`Observation::ProbeTimeout`].
    Health,
    /// The engine's metrics. The results are [`Observation::Metrics`] and
    /// [`Observation::MetricsUnreadable`].
    Load,
    /// The list of models. The results are [`Observation::Models`] and
    /// [`Observation::ModelsUnreadable`]; a poll without an answer has none.
    Models,
}

/// The polls that are due now, and the time of the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PollRequests {
    /// The requests that are due now.
    pub due: Vec<PollRequest>,
    /// When the next poll is due if nothing happens before. `None`: none is due before the next
    /// call.
    pub next: Option<Instant>,
}

/// What a call requires of its replica, and what it prefers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// The model that the call names, or `None` if it names none: then any replica can serve it.
    pub model: Option<Arc<str>>,
    /// Hashes of the prompt's prefixes and of the session, by which calls of one conversation are
    /// sent to the same replica.
    pub affinity: Affinity,
    /// Replicas at which the call has failed. They are chosen only if no other replica can serve
    /// the call.
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
    /// The replica rejected the call with an overload status such as 503. Contains the delay of its
    /// Retry-After, or `None` if it sent none.
    Full(Option<Duration>),
    /// The replica rejected the call with a 429. Contains the delay of its Retry-After, or `None`
    /// if it sent none.
    Limited(Option<Duration>),
    /// The connection was refused.
    ConnectRefused,
    /// No connection was made, for a reason that may not be the replica's (DNS, TLS, routes,
    /// timeouts). The replica has not seen the call.
    Unreached,
    /// The exchange failed after the call was sent, or the replica answered with another 5xx
    /// status.
    Broke,
    /// The replica is healthy, but does not serve the model of the call (404).
    NoModel,
    /// The replica does not accept the credential of the call (401). The cause may be the call or
    /// the replica.
    Unauthenticated,
    /// The replica rejected the call with another error that a retry would not change, such as 400,
    /// 403 or 404. The cause may be the call or the replica.
    Rejected,
    /// Nothing of the response had arrived when the call's deadline or a timeout of the caller's
    /// client passed. The cause may be the call, the caller or the replica.
    Unanswered,
}

impl Fault {
    /// Returns the replica's fault in the outcome of an attempt. Returns `None` if the attempt was
    /// accepted or cancelled, or failed for a reason that says nothing about the replica. The
    /// results whose cause may be the call or its caller are faults only if there are many.
    ///
    /// `has_begun` is `true` if the response had begun: then only a broken response is a fault, and
    /// a timeout is not.
    pub fn from_outcome(outcome: &AttemptOutcome, has_begun: bool) -> Option<Self> {
        match outcome {
            AttemptOutcome::Rejected(_) if !has_begun && outcome.lacks_model() => Some(Self::NoModel),
            AttemptOutcome::Rejected(_) if !has_begun && outcome.is_unauthenticated() => {
                Some(Self::Unauthenticated)
            }
            AttemptOutcome::Rejected(verdict) => match verdict.class {
                Class::Overloaded => Some(Self::Full(outcome.retry_after())),
                Class::RateLimited => Some(Self::Limited(outcome.retry_after())),
                Class::ServerError | Class::Timeout if verdict.retryable => Some(Self::Broke),
                _ => (!has_begun).then_some(Self::Rejected),
            },
            AttemptOutcome::Failed(failure) => match (&failure.kind, &failure.cause) {
                (ErrorKind::Transport | ErrorKind::Truncated, _) if has_begun => Some(Self::Broke),
                _ if has_begun => None,
                (_, FailureCause::ConnectRefused) => Some(Self::ConnectRefused),
                (kind, _) if kind.never_sent() => Some(Self::Unreached),
                (_, FailureCause::CallerTimeout) => Some(Self::Unanswered),
                _ => Some(Self::Broke),
            },
            AttemptOutcome::Accepted { .. } | AttemptOutcome::Cancelled(_) => None,
        }
    }

    /// Returns `true` if the replica may have run the call, or has rejected its content. Then no
    /// other replica is tried at once: the call might run twice, or fail there, too. A credential
    /// that one replica does not accept may be valid at another.
    pub(crate) fn may_have_run(self) -> bool {
        matches!(self, Self::Broke | Self::Rejected | Self::Unanswered)
    }

    /// Returns `true` if the cause may be the call or its caller, so that the fault counts against
    /// the replica only if the replica fails many calls in this way and others do not.
    pub(crate) fn may_be_of_call(self) -> bool {
        matches!(self, Self::Unauthenticated | Self::Rejected | Self::Unanswered)
    }
}
