//! Sends calls to replicas without a pool: a function chooses the replica of each call.

use std::sync::Arc;

use http::Request;
use parking_lot::Mutex;
use tidegate::{RequestBody, Transport};
use tower::ServiceExt;

/// Returns a transport that sends each request to the replica whose index `choose` returns, through
/// `wire`.
pub(crate) fn to_chosen(
    wire: Transport,
    replicas: &[String],
    choose: impl FnMut() -> usize + Send + 'static,
) -> Transport {
    let (replicas, choose): (Arc<[String]>, _) = (replicas.into(), Arc::new(Mutex::new(choose)));
    Transport::new(tower::service_fn(move |mut request: Request<RequestBody>| {
        let chosen = choose.lock()();
        let path = request.uri().path();
        if let Some(uri) = replicas.get(chosen).and_then(|replica| format!("{replica}{path}").parse().ok()) {
            *request.uri_mut() = uri;
        }
        wire.clone().oneshot(request)
    }))
}
