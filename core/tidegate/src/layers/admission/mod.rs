//! The admission layer: each attempt waits for a permit. The response body holds the permit until
//! the body ends, or until all of it has arrived.

mod apply_outcome;
mod permit_body;
mod read_ahead;
mod wait_for_slot;

use http::Request;

pub(crate) use self::apply_outcome::apply;
use self::permit_body::PermitBody;
pub(crate) use self::wait_for_slot::admit;
use crate::admission::{Permit, ReleaseGuard};
use crate::body::RequestBody;
use crate::call::{AttemptResult, Call, CanReplay, outcome_of, set_retry_path};
use crate::clock;
use crate::error::{Error, ErrorKind, Reason};
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};
use tidegate_policy::outcome::{AttemptOutcome, Cancellation};
use tidegate_policy::retry::RetryPath;
use tidegate_protocol::RateHeaders;

/// Admits each attempt of a call when its target has a slot for it.
///
/// *Default*: acts on calls that run a model. Other calls need no slot.
///
/// # Cancel safety
/// Dropping the future removes the call from the queue, or releases its slot. Dropping the response
/// body releases the slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionLayer;

tower_layer!(AdmissionLayer);

impl<S: InnerService> Middleware<S> for AdmissionLayer {
    fn applies_to(&self, call: &Call) -> bool {
        call.is_inference()
    }

    fn call(&self, call: Call, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        let mut inner = take_ready(inner);
        Box::pin(async move {
            // A block, because this future would otherwise keep memory for what was moved out of
            // it.
            let (mut held, cancel_signal) = {
                let mut permit = admit(&call).await?;
                let release_guard = ReleaseGuard::new();
                let extensions = request.extensions_mut();
                extensions.insert(release_guard.clone());
                if let Some(placed) = permit.placed() {
                    extensions.insert(placed.clone());
                }
                let cancel_signal = if extensions.get::<CanReplay>().is_some() && call.facts().repeatable {
                    permit.cancel_signal()
                } else {
                    // The attempt cannot be sent again, or it may have run and must not run twice.
                    permit.on_response_head();
                    None
                };
                (PermitBody::new(call.clone(), permit, release_guard), cancel_signal)
            };
            let cancelled = async {
                match &cancel_signal {
                    Some(signal) => signal.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            let mut result = tokio::select! {
                biased;
                result = inner.call(request) => result,
                cause = cancelled => return Err(cancellation_error(&call, cause)),
            };
            let outcome = outcome_of(&result);
            held.on_result(&result, &outcome);
            apply_rate_headers(&call, held.permit(), &result, &outcome);
            let path = held.permit().map_or(RetryPath::Backoff, |permit| apply(&call, permit, &outcome));
            set_retry_path(&mut result, path);
            let response = result.map_err(|error| call.locate_error(error))?;
            Ok(response.map(|body| held.into_response_body(body)))
        })
    }
}

/// Returns the error of an attempt that the gate cancelled for `cause`. The retry layer then makes
/// another attempt, which keeps the age of its call.
fn cancellation_error(call: &Call, cause: Cancellation) -> Error {
    let (error, path) = match cause {
        Cancellation::Preempted => (
            Error::new(
                ErrorKind::Refused(Reason::NoSlot),
                "the slot was borrowed from another tenant or lane, whose `floor` needs it again; the call is queued again",
            ),
            RetryPath::Backoff,
        ),
        Cancellation::ReplicaDown => (
            Error::new(
                ErrorKind::Transport,
                "the replica went down before its response began (see the pool's `down_after`)",
            ),
            RetryPath::OtherReplica,
        ),
    };
    let mut error = call.locate_error(error);
    error.extensions_mut().insert(AttemptOutcome::Cancelled(cause));
    error.extensions_mut().insert(path);
    error
}

/// Updates the rate budgets from the rate-limit headers of a response. Does nothing if `permit` is
/// `None`, because the slot was already released.
fn apply_rate_headers(
    call: &Call,
    permit: Option<&mut Permit>,
    result: &AttemptResult,
    outcome: &AttemptOutcome,
) {
    let Some(permit) = permit else { return };
    let Ok(response) = result else { return };
    // If several credentials or models use the target, or several targets its budgets, headers and
    // rejections apply to one of them only. Responses without rate headers are reported too,
    // because each of them increases a rate that a rejection has reduced.
    let target = call.target();
    let has_one_key = target.keyed_cooldowns().is_none() && !target.admission().budgets.has_several_targets();
    let headers = if has_one_key {
        RateHeaders::read(response.headers(), clock::wall())
    } else {
        RateHeaders::default()
    };
    permit.on_rate_headers(call.sent_at(), &headers, has_one_key && outcome.is_rate_limited());
}
