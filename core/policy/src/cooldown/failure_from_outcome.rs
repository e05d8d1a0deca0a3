//! Converts the outcome of an attempt into the failure that counts against the target.

use tidegate_protocol::Class;

use super::Failure;
use crate::outcome::AttemptOutcome;

impl Failure {
    /// Returns the failure that counts against the target. `None` if the target accepted the
    /// attempt or rejected it because of the request itself, and if the attempt was cancelled.
    ///
    /// `waits_for_outage` is `true` if the call's deadline was set by the caller or the
    /// configuration. Calls are then queued while the target is not reachable, even if it has never
    /// worked.
    pub fn from_outcome(outcome: &AttemptOutcome, waits_for_outage: bool) -> Option<Self> {
        use AttemptOutcome::{Accepted, Cancelled, Failed, Rejected};
        match outcome {
            // The target is full for other calls too if this one must not be repeated.
            Rejected(verdict) => match verdict.class {
                Class::Overloaded => Some(Self::Unread { worth_waiting: true }),
                // A rate limit also rejects unread, but does not mean that the target is down.
                Class::RateLimited => Some(Self::Limited),
                _ => verdict.retryable.then_some(Self::Other),
            },
            Failed(failure) if failure.kind.never_sent() => {
                Some(Self::Unread { worth_waiting: waits_for_outage })
            }
            Failed(_) => Some(Self::Other),
            Accepted { .. } | Cancelled(_) => None,
        }
    }
}
