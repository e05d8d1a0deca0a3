//! Classifies attempts whose exchange ended with an error. `layer.rs` classifies error responses.

use crate::call::Call;
use crate::error::{Error, ErrorKind};
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};

/// Adds the name of the target to the error of a failed exchange, and attaches the outcome of the
/// attempt to the error. Returns the error.
///
/// A timeout counts as one of the caller's client: a transport does not apply the target's limits.
pub(super) fn failed(call: &Call, error: Error) -> Error {
    let mut failure = ExchangeFailure::from(&error);
    let is_timeout = matches!(failure.kind, ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout);
    if is_timeout && failure.cause == FailureCause::Upstream {
        failure.cause = FailureCause::CallerTimeout;
    }
    with_outcome(call, error, failure)
}

/// Does the same as [`failed`] for the error of a limit that has passed. `cause` is the
/// side that is at fault, as [`Call::head_limit`] and [`Call::idle_limit`] return it.
pub(super) fn timed_out(call: &Call, error: Error, cause: FailureCause) -> Error {
    let failure = ExchangeFailure { cause, ..ExchangeFailure::from(&error) };
    with_outcome(call, error, failure)
}

fn with_outcome(call: &Call, error: Error, failure: ExchangeFailure) -> Error {
    let mut error = error.at(call.target().name());
    error.extensions_mut().insert(AttemptOutcome::Failed(failure));
    error
}
