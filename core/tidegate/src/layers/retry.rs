//! The retry layer: makes the attempts of each call, one after the other.
//!
//! Retries in several layers multiply: three attempts in the SDK times four in a gateway are
//! twelve, most of them while the upstream is overloaded. Therefore one layer makes all attempts of
//! a call, one retry budget limits the retries per target, and each failure that is returned to the
//! caller has the header `x-should-retry: false`.
//!
//! The slot of a failed attempt is released before the backoff. A retry keeps the age of its call
//! and its position in the fair queue, and is queued even if the queue is full, unless the target
//! refuses calls and has a fallback.

use std::time::Duration;

use http::{HeaderValue, Request};

use crate::body::RequestBody;
use crate::call::{AttemptResult, Call, CanReplay, RetryCharge, outcome_of, retry_path_of};
use crate::clock;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};
use crate::metrics::{OTHER_REPLICA, PREEMPTED, REPLICA_DOWN, UNKNOWN};
use tidegate_policy::outcome::{AttemptOutcome, Cancellation};
use tidegate_policy::retry::RetryPath;
use tidegate_policy::retry::{FailedAttempt, GiveUpReason, NextStep, avoids_replica, decide};

/// The response header that tells the caller's SDK not to retry a failed call.
const SHOULD_RETRY: &str = "x-should-retry";

/// Makes the attempts of each call, one after the other.
///
/// *Default*: at most 4 attempts per call, and at most as many retries as 20 % of the recent calls
/// plus 10. The layer must be below any timeout that restarts with each attempt. It must be above
/// admission, because a call would otherwise hold its slot during the backoff.
///
/// # Cancel safety
///
/// Dropping the future ends the attempt in flight, and refunds the retry-budget charge of a retry
/// that was not sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryLayer;

tower_layer!(RetryLayer);

impl<S: InnerService> Middleware<S> for RetryLayer {
    fn call(&self, call: Call, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        Box::pin(make_attempts(call, request, take_ready(inner)))
    }
}

/// Makes attempts of a call until one is accepted, or until no retry may follow. Returns the result
/// of the last attempt.
async fn make_attempts<S: InnerService>(
    call: Call,
    request: Request<RequestBody>,
    mut inner: S,
) -> AttemptResult {
    if call.is_inference() {
        call.target().retries().lock().deposit(clock::now());
    }
    let (mut parts, mut body) = request.into_parts();
    let mut attempts = 0;
    let mut charge: Option<RetryCharge> = None;
    loop {
        let body_copy = if call.is_enforced() { body.try_clone() } else { None };
        if body_copy.is_some() {
            parts.extensions.insert(CanReplay);
        }
        std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
        let result = inner.call(Request::from_parts(parts.clone(), body)).await;
        // Refunded if nothing was sent.
        drop(charge.take());
        let (outcome, path) = (outcome_of(&result), retry_path_of(&result));
        if outcome.is_accepted() {
            return result;
        }
        call.on_failed_attempt(&outcome);
        if outcome == AttemptOutcome::Cancelled(Cancellation::Preempted)
            && let Some(body_copy) = body_copy
        {
            // A cancelled attempt is not a failure. The call is queued again, with its age and its
            // charge.
            call.target().metrics().on_retry(PREEMPTED);
            drop(result);
            body = body_copy;
            continue;
        }
        if avoids_replica(&outcome) {
            call.avoid(call.placed());
        }
        let mut left = call.deadline().saturating_duration_since(clock::now());
        if path == RetryPath::AllReplicasFull {
            left = call.left_to_wait().map_or(left, |wait| wait.min(left));
        }
        let failure = FailedAttempt::from_outcome(&outcome, path, call.facts().repeatable, attempts, left);
        attempts = failure.attempts;
        let Some(body_copy) = body_copy else {
            return return_failure(&call, result, GiveUpReason::Unsafe);
        };
        let withdraw = || {
            charge = RetryCharge::withdraw(&call);
            charge.is_some()
        };
        let sleep = match decide(&call.retry_config(), failure, withdraw, fastrand::f64()) {
            NextStep::GiveUp(why) => return return_failure(&call, result, why),
            NextStep::Backoff(sleep) => Some(sleep),
            NextStep::Pause(sleep) => {
                call.update_queue(|queue| queue.waited += sleep);
                Some(sleep)
            }
            NextStep::Requeue => None,
        };
        record_retry(&call, &outcome, path, sleep);
        // Releases the slot before any sleep.
        drop(result);
        if let Some(sleep) = sleep {
            tokio::time::sleep(sleep).await;
        }
        body = body_copy;
    }
}

/// Records in the current attempt and in the metrics that a retry follows, after `sleep`.
fn record_retry(call: &Call, outcome: &AttemptOutcome, path: RetryPath, sleep: Option<Duration>) {
    call.update_attempt(|attempt| attempt.backoff = sleep);
    if path == RetryPath::OtherReplica {
        call.target().metrics().on_retry_at_other_replica(call.placed().as_ref());
    }
    call.target().metrics().on_retry(match outcome {
        AttemptOutcome::Cancelled(Cancellation::ReplicaDown) => REPLICA_DOWN,
        _ if path == RetryPath::OtherReplica => OTHER_REPLICA,
        _ => call.last_failure().unwrap_or(UNKNOWN),
    });
}

/// Returns the failure of the last attempt to the caller. `why` is the reason why no retry follows.
/// In mode `enforce`, counts that reason and adds the header `x-should-retry: false` to an error
/// response. A rejection by admission is not counted here, because it is counted by its own reason.
/// If admission rejected a retry, adds the class of the last upstream failure to the error. Records
/// in each error whether an earlier attempt was sent.
fn return_failure(call: &Call, result: AttemptResult, why: GiveUpReason) -> AttemptResult {
    let is_rejection = result.as_ref().is_err_and(|error| error.reason().is_some());
    if call.is_enforced() && !is_rejection {
        call.target().metrics().on_give_up(why);
    }
    match result {
        Ok(mut response) => {
            if call.is_enforced() {
                response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
            Ok(response)
        }
        Err(error) => {
            let error = error.with_earlier_attempt_sent(call.was_sent());
            match (error.reason(), call.last_failure()) {
                (Some(_), Some(last)) => Err(error.with_last_failure(last)),
                _ => Err(error),
            }
        }
    }
}
