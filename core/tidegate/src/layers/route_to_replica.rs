//! The pool layer: writes the address of the chosen replica into each request to a pool.

use http::Request;

use crate::body::RequestBody;
use crate::call::Call;
use crate::error::Error;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, boxed, take_ready, tower_layer};
use crate::placement::Placed;

/// Replaces the address in a request to a pool with the address of the replica that serves the
/// call.
///
/// *Default*: acts on requests that carry a [`Call`] to a target that is a pool. The layer must be
/// below the admission layer, which selects the replica together with the slot. Calls that run no
/// model need no slot, so this layer selects their replica.
///
/// # Cancel safety
///
/// Dropping the future drops the future of the inner service. It has no other effect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RouteToReplicaLayer;

tower_layer!(RouteToReplicaLayer);

impl<S: InnerService> Middleware<S> for RouteToReplicaLayer {
    fn applies_to(&self, call: &Call) -> bool {
        call.target().pool().is_some()
    }

    fn call(&self, call: Call, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        if call.is_inference() {
            let placed = request.extensions().get::<Placed>().cloned();
            return match route(&call, placed, &mut request) {
                Ok(()) => boxed(inner.call(request)),
                Err(error) => Box::pin(async move { Err(error) }),
            };
        }
        let mut inner = take_ready(inner);
        Box::pin(async move {
            call.wait_for_first_lookup().await;
            route(&call, call.target().admission().pick_without_slot(), &mut request)?;
            inner.call(request).await
        })
    }
}

/// Writes the address of the replica `placed` into a request to a pool. Leaves the request
/// unchanged if the target is not a pool.
///
/// # Errors
///
/// `Refused` if `placed` is `None`, because no replica can take the call. `Request` if the URL of
/// the request cannot be placed below the base URL of the replica.
fn route(call: &Call, placed: Option<Placed>, request: &mut Request<RequestBody>) -> Result<(), Error> {
    match (call.target().pool(), placed) {
        (Some(pool), Some(placed)) => pool.route(request, &placed.url),
        (Some(pool), None) => Err(pool.no_replica()),
        (None, _) => Ok(()),
    }
}
