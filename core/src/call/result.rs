//! How an outcome travels from one layer to the next: in the extensions of the response or the
//! error.

use http::{Extensions, Response};

use crate::body::ResponseBody;
use crate::cooldown::Hold;
use crate::error::Error;
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure};

/// What the layers below retry return for an attempt.
pub(crate) type AttemptResult = Result<Response<ResponseBody>, Error>;

/// Returns the outcome that a lower layer attached to the result.
///
/// Without one, a response is accepted, and an error is classified by its kind: a layer that does
/// not send the request, such as admission, returns errors of its own.
pub(crate) fn outcome_of(result: &AttemptResult) -> AttemptOutcome {
    match result {
        Ok(response) => match response.extensions().get() {
            Some(outcome) => AttemptOutcome::clone(outcome),
            None => AttemptOutcome::Accepted { streams: false },
        },
        Err(error) => outcome_of_error(error),
    }
}

/// Returns the outcome that is attached to an error, or else classifies the error by its kind.
pub(crate) fn outcome_of_error(error: &Error) -> AttemptOutcome {
    let attached = error.extensions().get().cloned();
    attached.unwrap_or_else(|| AttemptOutcome::Failed(ExchangeFailure::from(error)))
}

/// Returns what admission concluded from the failure, or [`Hold::No`].
pub(crate) fn hold_of(result: &AttemptResult) -> Hold {
    let extensions = match result {
        Ok(response) => response.extensions(),
        Err(error) => error.extensions(),
    };
    extensions.get().copied().unwrap_or(Hold::No)
}

/// Attaches what admission concludes from a failure.
pub(crate) fn set_hold(result: &mut AttemptResult, hold: Hold) {
    let extensions: &mut Extensions = match result {
        Ok(response) => response.extensions_mut(),
        Err(error) => error.extensions_mut(),
    };
    extensions.insert(hold);
}
