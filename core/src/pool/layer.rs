//! A tower layer that sends each call to a pool to the replica that admission has chosen.

use std::sync::Arc;

use http::Request;
use http::header::HOST;

use crate::body::RequestBody;
use crate::call::Call;
use crate::config::ReplicaSource;
use crate::error::{Error, ErrorKind, Reason};
use crate::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};
use crate::placement::Placed;
use crate::target::Target;

/// Replaces the address in a request by the address of its replica.
///
/// *Default*: acts on requests that carry a [`Call`] to a target that is a pool, and passes on
/// others. It must be below the admission layer, which chooses the replica.
///
/// # Cancel safety
///
/// As the service below.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolLayer;

tower_layer!(PoolLayer);

impl<S: InnerService> Middleware<S> for PoolLayer {
    fn call(&self, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        let call = request.extensions().get::<Call>().filter(|call| call.target().config().pool.is_some());
        let Some(call) = call.cloned() else { return Box::pin(inner.call(request)) };
        if call.is_inference() {
            let placed = request.extensions().get::<Placed>().cloned();
            return match sent(&call, placed, &mut request) {
                Ok(()) => Box::pin(inner.call(request)),
                Err(error) => Box::pin(async move { Err(error) }),
            };
        }
        let mut inner = take_ready(inner);
        Box::pin(async move {
            call.replicas_known().await;
            sent(&call, call.target().admission().pick_without_slot(), &mut request)?;
            inner.call(request).await
        })
    }
}

/// Points a request at its chosen replica.
///
/// # Errors
///
/// `Refused` if no replica was chosen. `Request` as for [`send_to`].
fn sent(call: &Call, placed: Option<Placed>, request: &mut Request<RequestBody>) -> Result<(), Error> {
    match placed {
        Some(placed) => send_to(call.target(), &placed.url, request),
        None => Err(nowhere(call.target())),
    }
}

/// Points a request to its pool at `replica`.
///
/// # Errors
/// `Request` if the URL cannot be placed below the replica's base URL.
pub(super) fn send_to(
    target: &Target,
    replica: &Arc<str>,
    request: &mut Request<RequestBody>,
) -> Result<(), Error> {
    let there = target.addresses().and_then(|addresses| addresses.at(request.uri(), replica));
    let text = "its URL cannot be put below the replica's";
    *request.uri_mut() = there.ok_or_else(|| Error::new(ErrorKind::Request, text).at(target.name()))?;
    // Removed because the transport sets it to the host that it sends to.
    request.headers_mut().remove(HOST);
    Ok(())
}

/// Returns the error for a pool without a usable replica: why there is none, and what to do about
/// it.
pub(super) fn nowhere(target: &Target) -> Error {
    let none = target.admission().replicas().is_empty();
    let told = target.config().pool.as_ref().is_some_and(|pool| pool.source == ReplicaSource::Dynamic);
    let text = match (none, told) {
        (true, true) => "the pool has no replica: tell the gate of them (`set_replicas`)",
        (true, false) => "the pool has no replica",
        (false, _) => "none of the pool's replicas can be asked now: they are down, or leave",
    };
    target.admit_ignorance(Error::new(ErrorKind::Refused(Reason::Outage), text).at(target.name()))
}
