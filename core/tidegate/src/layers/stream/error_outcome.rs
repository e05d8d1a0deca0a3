//! Classifies attempts whose exchange ended with an error. `layer.rs` classifies error responses.

use crate::call::Call;
use crate::error::{Error, ErrorKind};
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};

/// Adds the name of the target to the error of a failed exchange, and attaches the outcome of the
/// attempt to the error. Returns the error.
pub(super) fn failed(call: &Call, error: Error) -> Error {
    let mut failure = ExchangeFailure::from(&error);
    if failure.cause == FailureCause::Upstream && is_caller_timeout(call, failure.kind) {
        failure.cause = FailureCause::CallerTimeout;
    }
    let mut error = error.at(call.target().name());
    error.extensions_mut().insert(AttemptOutcome::Failed(failure));
    error
}

/// Returns `true` if an error of the kind `kind` is a timeout of the caller's client. This is the
/// case for a first-token or idle timeout if the client's read timeout is shorter than the target's
/// limit, or if the target has no such limit.
fn is_caller_timeout(call: &Call, kind: ErrorKind) -> bool {
    let config = call.target().config();
    let limit = match kind {
        ErrorKind::FirstTokenTimeout => config.first_token.filter(|_| call.facts().stream),
        ErrorKind::IdleTimeout => config.idle,
        _ => return false,
    };
    let limit = limit.filter(|_| call.is_enforced());
    limit.is_none_or(|limit| call.timeouts().read.is_some_and(|own| own < limit))
}
