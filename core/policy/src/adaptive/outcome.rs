//! Translates the outcome of an attempt for the adaptive limit.

use super::Ended;
use crate::ErrorKind;
use crate::outcome::AttemptOutcome;
use tidegate_protocol::Class;

impl Ended {
    /// Returns how the attempt ended for the limit, or `None` if its response goes on.
    ///
    /// `has_token` is `true` if the first token has come: silence counts against the upstream only
    /// before that. `is_by_rate` is called for a 429 only, and tells whether a rate was exceeded.
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
