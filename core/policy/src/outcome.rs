//! The outcome of an attempt, classified once for all policies.
//!
//! The stream layer classifies each attempt and attaches the [`AttemptOutcome`] to the response or
//! the error that it returns. Retry, cool-down, replica health and the adaptive limit each derive
//! their own input from it in one pure function. See `docs/design/attempt-outcome.md`.

use std::time::Duration;

use tidegate_protocol::{Class, Verdict};

use crate::{ErrorKind, Reason};

/// The outcome of an attempt when its response head, or an error instead of it, is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The upstream accepted the request and began its response, which may still break off.
    Accepted {
        /// Whether the response is a stream of events. If `false`, nothing is known about the
        /// response before its end.
        streams: bool,
    },
    /// The upstream returned an error, as a status or as an event before the first token of a
    /// stream.
    Rejected(Verdict),
    /// The upstream returned no valid response: the request was not sent, timed out, or the
    /// connection failed.
    Failed(ExchangeFailure),
    /// The gate cancelled the attempt before its response began.
    Cancelled(Cancellation),
}

/// A failed exchange: the upstream returned no valid response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeFailure {
    /// The error that is returned for the attempt.
    pub kind: ErrorKind,
    /// The side that caused the failure.
    pub cause: FailureCause,
    /// How long the upstream asked callers to wait, as reported by a caller that sends the request
    /// itself and uses the gate only for its slot. `None` for requests that the gate sends.
    pub retry_after: Option<Duration>,
}

/// The side that caused a failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The upstream, or the network between it and this process.
    Upstream,
    /// The host of the upstream refused the connection, because no server listens there.
    ConnectRefused,
    /// A timeout of the caller's client that is shorter than the target's own limit. The failure
    /// says nothing about the upstream, because another caller would have waited longer.
    CallerTimeout,
    /// This process. The failure says nothing about the upstream.
    Local,
}

/// Why the gate cancelled an attempt before its response began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// The attempt used a slot that was borrowed from another tenant, and that tenant now needs the
    /// slot.
    Preempted,
    /// The replica of the attempt went down.
    ReplicaDown,
}

impl AttemptOutcome {
    /// Returns `true` if the upstream accepted the request.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted { .. })
    }

    /// Returns `true` if the same request may succeed later. `false` for accepted requests.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Accepted { .. } => false,
            Self::Rejected(verdict) => verdict.retryable,
            Self::Failed(failure) => failure.kind.is_retryable(),
            Self::Cancelled(_) => true,
        }
    }

    /// Returns `true` if the upstream did not process the request, so that sending it again is
    /// safe. `false` if that is not certain.
    pub fn never_executed(&self) -> bool {
        match self {
            Self::Rejected(verdict) => verdict.never_executed,
            Self::Failed(failure) => failure.kind.never_sent(),
            Self::Accepted { .. } | Self::Cancelled(_) => false,
        }
    }

    /// Returns `true` if a part of the request may have reached the upstream.
    pub fn may_have_been_sent(&self) -> bool {
        !matches!(self, Self::Failed(failure) if failure.kind.never_sent())
    }

    /// Returns `true` if the upstream does not serve the model of the request. The body of the
    /// response names the error; otherwise, the path of the request may be unknown instead.
    pub(crate) fn lacks_model(&self) -> bool {
        matches!(self, Self::Rejected(Verdict { class: Class::NotFound, code: Some(_), .. }))
    }

    /// Returns `true` if the upstream did not accept the credential of the request (401).
    pub(crate) fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Rejected(Verdict { class: Class::Unauthorized, status: 401, .. }))
    }

    /// Returns `true` if another replica of the same pool may accept the request although this
    /// upstream never will: it does not serve the model, or does not accept the credential.
    pub(crate) fn is_misplaced(&self) -> bool {
        self.lacks_model() || self.is_unauthenticated()
    }

    /// Returns `true` if the upstream rejected the attempt because requests or tokens arrive too
    /// fast.
    pub fn is_rate_limited(&self) -> bool {
        matches!(self, Self::Rejected(verdict) if verdict.class == Class::RateLimited)
    }

    /// Returns how long the upstream asked callers to wait before the next attempt. `None` if it
    /// named no delay.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(verdict) => verdict.delay,
            Self::Failed(failure) => failure.retry_after,
            Self::Accepted { .. } | Self::Cancelled(_) => None,
        }
    }

    /// Returns `true` if the outcome says nothing about the upstream, not even that it is up: the
    /// attempt was cancelled, or failed because of the caller or this process. Also returns `true`
    /// if another gate has rejected the call for what the call or its tenant may use there.
    pub fn is_inconclusive(&self) -> bool {
        use FailureCause::{CallerTimeout, Local};

        match self {
            Self::Cancelled(_) | Self::Failed(ExchangeFailure { cause: CallerTimeout | Local, .. }) => true,
            Self::Rejected(verdict) if !verdict.retryable => {
                verdict.code.as_deref().is_some_and(is_reason_of_one_call)
            }
            _ => false,
        }
    }

    /// Returns `true` if the content of the request may have caused the failure: the upstream
    /// returned a retryable error other than a rate limit or an overload, or the exchange failed
    /// after the request may have been sent and no delay was named.
    pub fn may_be_fault_of_call(&self) -> bool {
        match self {
            Self::Rejected(verdict) => {
                verdict.retryable && !matches!(verdict.class, Class::RateLimited | Class::Overloaded)
            }
            Self::Failed(failure) => !failure.kind.never_sent() && failure.retry_after.is_none(),
            Self::Accepted { .. } | Self::Cancelled(_) => false,
        }
    }

    /// Returns the name of the failure in metrics and messages. `None` for accepted attempts, and
    /// for failures that this process caused: local errors, rejected admissions and preemptions.
    pub fn failure_class(&self) -> Option<&'static str> {
        match self {
            Self::Rejected(verdict) => Some(verdict.class.as_str()),
            Self::Failed(failure) => {
                let is_own = failure.cause == FailureCause::Local || failure.kind.reason().is_some();
                (!is_own).then(|| failure.kind.as_str())
            }
            Self::Cancelled(Cancellation::ReplicaDown) => Some(ErrorKind::Transport.as_str()),
            Self::Accepted { .. } | Self::Cancelled(Cancellation::Preempted) => None,
        }
    }

    /// Returns how the upstream failed the attempt, in words, such as `connections are refused`.
    /// `None` for accepted and for cancelled attempts.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Rejected(verdict) => Some(format!("status {}", verdict.status)),
            Self::Failed(failure) => Some(failure.problem().to_owned()),
            Self::Accepted { .. } | Self::Cancelled(_) => None,
        }
    }
}

impl ExchangeFailure {
    /// Returns how exchanges fail, in words.
    fn problem(&self) -> &'static str {
        match self.kind {
            ErrorKind::Connect if self.cause == FailureCause::ConnectRefused => "connections are refused",
            ErrorKind::Connect => "no connection can be established",
            ErrorKind::ConnectTimeout => "no connection is established in time",
            ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout => "calls are not answered in time",
            _ => "connections break",
        }
    }
}

/// Returns `true` if a gate rejects calls with this code while other calls may be admitted.
fn is_reason_of_one_call(code: &str) -> bool {
    let is_of_all = |reason: &Reason| matches!(reason, Reason::CoolDown | Reason::Outage | Reason::Draining);
    Reason::ALL.iter().any(|reason| reason.as_str() == code && !is_of_all(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::Ended;
    use crate::placement::Fault;

    #[test]
    fn response_that_broke_off_counts_less_than_no_response() {
        for (kind, fault) in [
            (ErrorKind::Transport, Some(Fault::Broke)),
            (ErrorKind::Truncated, Some(Fault::Broke)),
            (ErrorKind::IdleTimeout, None),
        ] {
            let cause = FailureCause::Upstream;
            let outcome = AttemptOutcome::Failed(ExchangeFailure { kind, cause, retry_after: None });
            assert_eq!(Fault::from_outcome(&outcome, true), fault, "{kind:?}");
            assert_eq!(outcome.ended(true, || false), Some(Ended::Failed), "{kind:?}");
        }
    }

    /// A rejection by another gate holds the other calls only if it concerns all of them.
    #[test]
    fn rejections_by_a_gate_for_one_call_are_inconclusive() {
        let rejected = |code: &str, retryable| {
            AttemptOutcome::Rejected(Verdict {
                class: Class::RateLimited,
                status: 429,
                retryable,
                delay: Some(Duration::from_secs(30)),
                code: Some(code.into()),
                never_executed: true,
            })
        };
        for (code, is_inconclusive) in [
            ("predicted_wait", true),
            ("queue_full", true),
            ("cool_down", false),
            ("outage", false),
            ("rate_limit_exceeded", false),
        ] {
            assert_eq!(rejected(code, false).is_inconclusive(), is_inconclusive, "{code}");
        }
        assert!(!rejected("queue_full", true).is_inconclusive(), "a provider's code");
    }
}
