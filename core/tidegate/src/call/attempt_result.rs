//! Passes the outcome of an attempt from a layer to the layer above it, in the extensions of the
//! response or of the error.

use http::{Extensions, Response};

use crate::body::ResponseBody;
use crate::error::Error;
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure};
use tidegate_policy::retry::RetryPath;

/// The result of an attempt, as the layers below retry return it.
pub(crate) type AttemptResult = Result<Response<ResponseBody>, Error>;

/// Returns the outcome that a lower layer attached to the result.
///
/// An error without an attached outcome, such as a rejection by admission, is classified by its
/// kind. A response without an attached outcome counts as accepted.
pub(crate) fn outcome_of(result: &AttemptResult) -> AttemptOutcome {
    match result {
        Ok(response) => match response.extensions().get() {
            Some(outcome) => AttemptOutcome::clone(outcome),
            None => AttemptOutcome::Accepted { streams: false },
        },
        Err(error) => outcome_of_error(error),
    }
}

/// Returns the outcome that is attached to an error. If none is attached, classifies the error by
/// its kind.
pub(crate) fn outcome_of_error(error: &Error) -> AttemptOutcome {
    let attached = error.extensions().get().cloned();
    attached.unwrap_or_else(|| AttemptOutcome::Failed(ExchangeFailure::from(error)))
}

/// Returns how the call continues if it is retried, as admission attached it to the result.
/// [`RetryPath::Backoff`] if nothing is attached.
pub(crate) fn retry_path_of(result: &AttemptResult) -> RetryPath {
    let extensions = match result {
        Ok(response) => response.extensions(),
        Err(error) => error.extensions(),
    };
    extensions.get().copied().unwrap_or(RetryPath::Backoff)
}

/// Attaches to a result how the call continues if it is retried. [`RetryPath::Backoff`] removes
/// what was attached before, for example by a gate below this one.
pub(crate) fn set_retry_path(result: &mut AttemptResult, path: RetryPath) {
    let extensions: &mut Extensions = match result {
        Ok(response) => response.extensions_mut(),
        Err(error) => error.extensions_mut(),
    };
    match path {
        RetryPath::Backoff => drop(extensions.remove::<RetryPath>()),
        path => drop(extensions.insert(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_policy::outcome::FailureCause;

    use super::*;
    use crate::adaptive::Ended;
    use crate::cooldown::Failure;
    use crate::error::{ErrorKind, Reason};
    use crate::placement::Fault;
    use tidegate_policy::outcome::Cancellation;
    use tidegate_protocol::{Verdict, classify_event};

    const WAIT: Option<Duration> = Some(Duration::from_secs(2));

    fn rejected(status: u16, delay: Option<Duration>) -> AttemptOutcome {
        let text = format!(r#"{{"error": {{"code": {status}}}}}"#);
        AttemptOutcome::Rejected(Verdict { delay, ..classify_event(text.as_bytes()) })
    }

    fn failed(kind: ErrorKind, cause: FailureCause) -> AttemptOutcome {
        AttemptOutcome::Failed(ExchangeFailure { kind, cause, retry_after: None })
    }

    #[test]
    fn each_policy_translates_each_outcome() {
        use FailureCause::{CallerTimeout, ConnectRefused, Local, Upstream};
        let (unread, other) = (Some(Failure::Unread { worth_waiting: false }), Some(Failure::Other));
        let (broke, unreached) = (Some(Fault::Broke), Some(Fault::Unreached));
        let unanswered = Some(Fault::Unanswered);
        let busy = Some(Failure::Unread { worth_waiting: true });
        let by_rate = Some(Ended::Limited { by_rate: true });
        let (late, no_sample) = (Some(Ended::TimedOut), Some(Ended::Failed));
        // The columns: the outcome, the failure of the target, the fault of the replica, and the
        // sample of the limit.
        for (outcome, failure, fault, ended) in [
            (AttemptOutcome::Accepted { streams: true }, None, None, None),
            (rejected(429, WAIT), Some(Failure::Limited), Some(Fault::Limited(WAIT)), by_rate),
            (rejected(503, None), busy, Some(Fault::Full(None)), Some(Ended::Overloaded)),
            (rejected(504, None), other, broke, late),
            (rejected(500, None), other, broke, no_sample),
            (rejected(400, None), None, Some(Fault::Rejected), no_sample),
            (failed(ErrorKind::Connect, ConnectRefused), unread, Some(Fault::ConnectRefused), no_sample),
            (failed(ErrorKind::ConnectTimeout, Upstream), unread, unreached, no_sample),
            (failed(ErrorKind::Transport, Upstream), other, broke, no_sample),
            (failed(ErrorKind::FirstTokenTimeout, Upstream), other, broke, late),
            (failed(ErrorKind::FirstTokenTimeout, CallerTimeout), other, unanswered, no_sample),
            (AttemptOutcome::Cancelled(Cancellation::ReplicaDown), None, None, Some(Ended::Cancelled)),
        ] {
            assert_eq!(Failure::from_outcome(&outcome, false), failure, "{outcome:?}");
            assert_eq!(Fault::from_outcome(&outcome, false), fault, "{outcome:?}");
            assert_eq!(outcome.ended(false, || true), ended, "{outcome:?}");
        }
        let inconclusive = [
            failed(ErrorKind::IdleTimeout, CallerTimeout),
            failed(ErrorKind::Connect, Local),
            AttemptOutcome::Cancelled(Cancellation::Preempted),
        ];
        assert!(inconclusive.iter().all(AttemptOutcome::is_inconclusive));
    }

    #[test]
    fn error_without_an_outcome_is_classified_by_its_kind() {
        let refused = Error::new(ErrorKind::Connect, "").with_connect_refused();
        let expected = failed(ErrorKind::Connect, FailureCause::ConnectRefused);
        assert_eq!(outcome_of_error(&refused), expected);
        let mut cancelled = Error::new(ErrorKind::Refused(Reason::NoSlot), "");
        let outcome = AttemptOutcome::Cancelled(Cancellation::Preempted);
        cancelled.extensions_mut().insert(outcome.clone());
        assert_eq!(outcome_of(&Err(cancelled)), outcome);
    }
}
