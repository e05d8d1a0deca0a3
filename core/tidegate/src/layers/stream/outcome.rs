//! Classifies failed exchanges. Error responses are classified in the layer.

use crate::call::Call;
use crate::error::{Error, ErrorKind};
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};

/// Attaches the outcome of the attempt and the name of the target to an exchange's error.
pub(super) fn failed(call: &Call, error: Error) -> Error {
    let mut failure = ExchangeFailure::from(&error);
    if failure.cause == FailureCause::Upstream && is_caller_timeout(call, failure.kind) {
        failure.cause = FailureCause::CallerTimeout;
    }
    let mut error = error.at(call.target().name());
    error.extensions_mut().insert(AttemptOutcome::Failed(failure));
    error
}

/// Returns `true` if a timeout of the caller's client ended the exchange before the target's own
/// limit did.
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
