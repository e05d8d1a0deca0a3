//! The tower layer: attempts one after the other, never two at once.

use http::{HeaderValue, Request, Response};

use super::charge::Charge;
use super::policy::{Failure, Next, Why, decide};
use crate::admission::Cause;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::clock;
use crate::cooldown::Hold;
use crate::error::Error;
use crate::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};
use crate::observe::{CALLED_BACK, ELSEWHERE, REPLICA_DOWN};
use crate::wire::classify::Verdict;

/// Says to SDKs above that we have tried already.
const SHOULD_RETRY: &str = "x-should-retry";

/// Drives the attempts of each call.
///
/// *Default*: 4 attempts, retries within 20 % of recent calls plus 10. Wrong order: above a timeout that starts anew with each attempt, or inside
/// the permit, which would hold a slot through the backoff.
/// *Cancellation safety*: dropping the future ends the attempt under way, and gives a scheduled retry's charge back.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryLayer;

tower_layer!(RetryLayer);

impl<S: InnerService> Middleware<S> for RetryLayer {
    fn call(&self, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        match request.extensions().get::<Call>().cloned() {
            Some(call) => Box::pin(drive(call, request, take_ready(inner))),
            None => Box::pin(inner.call(request)),
        }
    }
}

async fn drive<S: InnerService>(
    call: Call,
    request: Request<RequestBody>,
    mut inner: S,
) -> Result<Response<ResponseBody>, Error> {
    if call.is_inference() {
        call.target().retries().lock().earn(clock::now());
    }
    let (parts, mut body) = request.into_parts();
    let mut attempts = 0;
    let mut charge: Option<Charge> = None;
    loop {
        let spare = if call.is_enforced() { body.again() } else { None };
        call.set_spare(spare.is_some());
        std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
        let result = inner.call(Request::from_parts(parts.clone(), body)).await;
        if let Some(charge) = charge.take() {
            charge.spent();
        }
        let called_back = call.take_called_back();
        if called_back == Some(Cause::Reclaimed)
            && let Some(again) = spare
        {
            // No failure: its slot was somebody else's. It queues again, with its age and its charge.
            call.target().metrics().retried(CALLED_BACK);
            drop(result);
            body = again;
            continue;
        }
        let mut hold = call.take_hold();
        let Some(mut failure) = failure_of(&call, &result) else { return result };
        if called_back == Some(Cause::Fell) {
            hold = Hold::Elsewhere;
        } else if failure.retryable && !result.as_ref().is_err_and(Error::is_local) {
            call.avoid_replica();
        }
        if !(matches!(hold, Hold::Outage | Hold::Elsewhere | Hold::Full) && failure.never_executed) {
            attempts += 1;
        }
        (failure.hold, failure.attempts) = (hold, attempts);
        let Some(again) = spare else { return hand_up(&call, result, Why::Unsafe) };
        let next = decide(
            &call.target().config().retry,
            failure,
            || {
                charge = Charge::withdraw(&call);
                charge.is_some()
            },
            fastrand::f64(),
        );
        if let Next::GiveUp(why) = next {
            return hand_up(&call, result, why);
        }
        let sleep = match next {
            Next::Backoff(sleep) | Next::Later(sleep) => Some(sleep),
            Next::Requeue | Next::GiveUp(_) => None,
        };
        call.attempt(|attempt| attempt.backoff = sleep);
        if hold == Hold::Elsewhere {
            call.target().metrics().hopped(call.placed().as_ref());
        }
        call.target().metrics().retried(match (hold, called_back) {
            (Hold::Elsewhere, Some(_)) => REPLICA_DOWN,
            (Hold::Elsewhere, None) => ELSEWHERE,
            _ => call.last_failure().unwrap_or("unknown"),
        });
        // The failed response goes, and its slot with it, before any sleep.
        drop(result);
        if let Some(sleep) = sleep {
            tokio::time::sleep(sleep).await;
        }
        body = again;
    }
}

/// Counts an attempt's failure, where somebody upstream had a part in it.
fn note(call: &Call, result: &Result<Response<ResponseBody>, Error>, class: &'static str) {
    if !result.as_ref().is_err_and(|error| error.reason().is_some() || error.is_local()) {
        call.set_last_failure(class);
        call.target().metrics().upstream_failed(class, call.placed().as_ref());
    }
}

/// Counts the failure of an attempt that nothing follows from.
pub(crate) fn note_in_vain(call: &Call, result: &Result<Response<ResponseBody>, Error>) {
    match result {
        Ok(response) => {
            if let Some(verdict) = response.extensions().get::<Verdict>() {
                note(call, result, verdict.class.as_str());
            }
        }
        Err(error) => note(call, result, error.kind().as_str()),
    }
}

/// What failed, if anything did.
fn failure_of(call: &Call, result: &Result<Response<ResponseBody>, Error>) -> Option<Failure> {
    let refused = result.as_ref().is_err_and(|error| error.reason().is_some());
    let (retryable, never_executed, delay, class) = match result {
        Ok(response) => {
            let verdict = response.extensions().get::<Verdict>()?;
            (verdict.retryable, verdict.never_executed, verdict.delay, verdict.class.as_str())
        }
        // What admission refuses, it has waited for as long as the call may.
        Err(error) => (error.retryable() && !refused, error.never_sent(), None, error.kind().as_str()),
    };
    note(call, result, class);
    Some(Failure {
        retryable,
        never_executed,
        repeatable: call.facts().repeatable,
        delay,
        hold: Hold::No,
        attempts: 0,
        left: call.deadline().saturating_duration_since(clock::now()),
    })
}

/// The failure as the caller gets it: the provider's own answer, or our error, and nobody above need try again.
fn hand_up(
    call: &Call,
    result: Result<Response<ResponseBody>, Error>,
    why: Why,
) -> Result<Response<ResponseBody>, Error> {
    if call.is_enforced() {
        call.target().metrics().gave_up(why);
    }
    match result {
        Ok(mut response) => {
            if call.is_enforced() {
                response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
            Ok(response)
        }
        Err(error) => match (error.reason(), call.last_failure()) {
            (Some(_), Some(last)) => Err(error.after(last)),
            _ => Err(error),
        },
    }
}
