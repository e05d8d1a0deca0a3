//! How an attempt ended: one classification, which every policy translates.
//!
//! The stream layer classifies each attempt once and attaches the [`AttemptOutcome`] to the
//! response or the error that it returns. Retry, cool-down, replica health and the adaptive limit
//! each translate the outcome in one pure function, which stands beside the policy. See
//! `docs/design/attempt-outcome.md`.

use std::time::Duration;

use tidegate_protocol::{Class, Verdict};

use crate::ErrorKind;

/// How an attempt ended, as far as it is known when its response head is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The upstream accepted the request. Its response has begun, and may still break off.
    Accepted {
        /// Whether the response is a stream of events that can be read on its way.
        streams: bool,
    },
    /// The upstream answered with an error, by status or as the first event of a stream.
    Rejected(Verdict),
    /// The exchange failed without an answer, or the response broke off.
    Failed(ExchangeFailure),
    /// The gate cancelled the attempt before its response began.
    Cancelled(Cancellation),
}

/// An exchange that failed without an answer of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeFailure {
    /// What failed.
    pub kind: ErrorKind,
    /// Which side caused the failure.
    pub cause: FailureCause,
    /// How long the upstream asked callers to wait. Known only if the holder of a slot reports it.
    pub retry_after: Option<Duration>,
}

/// Which side caused a failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The upstream, or the way to it.
    Upstream,
    /// The upstream's host refused the connection: no server listens there.
    ConnectRefused,
    /// A timeout of the caller's client that is shorter than the target's own limit. Another caller
    /// would have waited longer, so nothing follows for the upstream.
    CallerTimeout,
    /// This process. Nothing follows for the upstream.
    Local,
}

/// Why the gate cancels an attempt whose response has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// The slot was borrowed, and its owner needs it.
    Reclaimed,
    /// The replica that the attempt was sent to went down.
    ReplicaDown,
}

impl AttemptOutcome {
    /// Returns `true` if the upstream accepted the request.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted { .. })
    }

    /// Returns `true` if the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Accepted { .. } => false,
            Self::Rejected(verdict) => verdict.retryable,
            Self::Failed(failure) => failure.kind.is_retryable(),
            Self::Cancelled(_) => true,
        }
    }

    /// Returns `true` if the upstream did no work for the request, so that sending it again is safe.
    pub fn never_executed(&self) -> bool {
        match self {
            Self::Rejected(verdict) => verdict.never_executed,
            Self::Failed(failure) => failure.kind.never_sent(),
            Self::Accepted { .. } | Self::Cancelled(_) => false,
        }
    }

    /// Returns `true` if the upstream rejected the attempt because requests or tokens come too fast.
    pub fn is_rate_limited(&self) -> bool {
        matches!(self, Self::Rejected(verdict) if verdict.class == Class::RateLimited)
    }

    /// Returns how long the upstream asked callers to wait before they try again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(verdict) => verdict.delay,
            Self::Failed(failure) => failure.retry_after,
            Self::Accepted { .. } | Self::Cancelled(_) => None,
        }
    }

    /// Returns `true` if nothing follows for the upstream, not even that it is up.
    pub fn is_inconclusive(&self) -> bool {
        match self {
            Self::Failed(failure) => {
                matches!(failure.cause, FailureCause::CallerTimeout | FailureCause::Local)
            }
            Self::Cancelled(_) => true,
            Self::Accepted { .. } | Self::Rejected(_) => false,
        }
    }

    /// Returns `true` if the failure may be caused by the call itself: the request ran, or may have.
    pub fn may_be_fault_of_call(&self) -> bool {
        match self {
            Self::Rejected(verdict) => {
                verdict.retryable && !matches!(verdict.class, Class::RateLimited | Class::Overloaded)
            }
            Self::Failed(failure) => !failure.kind.never_sent() && failure.retry_after.is_none(),
            Self::Accepted { .. } | Self::Cancelled(_) => false,
        }
    }

    /// Returns the name of the failure in metrics and messages. `None` if the upstream had no part
    /// in it.
    pub fn failure_class(&self) -> Option<&'static str> {
        match self {
            Self::Rejected(verdict) => Some(verdict.class.as_str()),
            Self::Failed(failure) => {
                let is_own = failure.cause == FailureCause::Local || failure.kind.reason().is_some();
                (!is_own).then(|| failure.kind.as_str())
            }
            Self::Cancelled(Cancellation::ReplicaDown) => Some(ErrorKind::Transport.as_str()),
            Self::Accepted { .. } | Self::Cancelled(Cancellation::Reclaimed) => None,
        }
    }
}
