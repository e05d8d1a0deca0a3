//! Translates the outcome of an attempt for the health of its replica.

use super::Fault;
use crate::ErrorKind;
use crate::outcome::{AttemptOutcome, FailureCause};
use tidegate_protocol::Class;

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
            AttemptOutcome::Failed(failure) if has_begun => {
                matches!(failure.kind, ErrorKind::Transport | ErrorKind::Truncated).then_some(Self::Broke)
            }
            AttemptOutcome::Failed(failure) => Some(match failure.cause {
                FailureCause::ConnectRefused => Self::ConnectRefused,
                _ if failure.kind.never_sent() => Self::Unreached,
                _ => Self::Broke,
            }),
            AttemptOutcome::Accepted { .. } | AttemptOutcome::Cancelled(_) => None,
        }
    }
}
