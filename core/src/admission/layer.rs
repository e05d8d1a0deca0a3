//! The tower layer: no attempt passes without a permit, and the permit travels with the response's body.

use http::{Request, Response};

use super::attempt::End;
use super::held::Held;
use super::recall::Cause;
use super::{Linger, ahead, attempt};
use crate::admission::Permit;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::clock;
use crate::cooldown::Hold;
use crate::error::{Error, ErrorKind, Reason};
use crate::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};
use crate::wire::RateHeaders;
use crate::wire::classify::{Class, Verdict};

/// Admits each attempt at its target's door.
///
/// *Default*: acts on requests that carry a [`Call`] (see `Gate::identify`) and run a model; others pass.
/// *Cancellation safety*: dropping the future leaves the queue, or gives the slot back.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionLayer;

tower_layer!(AdmissionLayer);

impl<S: InnerService> Middleware<S> for AdmissionLayer {
    fn call(&self, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        let mut inner = take_ready(inner);
        let call = request.extensions().get::<Call>().filter(|call| call.is_inference()).cloned();
        let Some(call) = call else { return Box::pin(inner.call(request)) };
        Box::pin(async move {
            let permit = attempt::admit(&call).await?;
            let linger = Linger::new();
            request.extensions_mut().insert(linger.clone());
            let mut held = Held::new(call.clone(), permit, linger);
            let recalled = held.recalled();
            let result = tokio::select! {
                biased;
                result = inner.call(request) => result,
                cause = recalled => return Err(call_back(&call, cause)),
            };
            held.answered(&result);
            hear(&call, held.permit(), &result);
            let judged = held.permit().map(|permit| attempt::judge(&call, permit, &End::of(&result)));
            call.set_hold(judged.unwrap_or(Hold::No));
            let answer = result.map_err(|error| call.happened(error))?;
            Ok(answer.map(|body| ahead::over(&call, held.over(body))))
        })
    }
}

/// Ends an attempt whose slot belongs to somebody else, or whose replica is down. The call is made again, as old as it is.
fn call_back(call: &Call, cause: Cause) -> Error {
    call.set_called_back(cause);
    let error = match cause {
        Cause::Reclaimed => Error::new(
            ErrorKind::Refused(Reason::NoSlot),
            "its slot was lent by another's floor, and called back; the call queues again",
        ),
        Cause::Fell => Error::new(
            ErrorKind::Transport,
            "its replica went down before it had begun to answer (see the pool's `down_after`)",
        ),
    };
    call.happened(error)
}

/// What the answer's head says of the provider's budgets.
fn hear(call: &Call, permit: Option<&mut Permit>, result: &Result<Response<ResponseBody>, Error>) {
    let Some(permit) = permit else { return };
    match result {
        Ok(response) => {
            let headers = RateHeaders::read(response.headers(), clock::wall());
            let verdict = response.extensions().get::<Verdict>();
            let limited = verdict.is_some_and(|verdict| verdict.class == Class::RateLimited);
            // One that says nothing is told too: what refusals have cut grows back with the answers that are none.
            // The rate headers of one credential say nothing about the others at a shared target.
            if call.shared().is_none() {
                permit.heard(call.sent_at(), &headers, limited);
            }
            if limited || verdict.is_some_and(|verdict| verdict.never_executed) {
                // It was turned away unread: nothing of what was reserved for it was taken.
                permit.unsent();
            }
        }
        Err(error) if error.never_sent() => permit.unsent(),
        Err(_) => {}
    }
}
