//! The task of one call: sends it through the gate, and reads the response to its end.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate::{Client, Context};

use super::call_state::CallState;
use super::event_hub::{DriverEvent, EventHub};
use super::metering::CallTag;
use crate::endpoint::Endpoint;

/// Sends [`DriverEvent::Done`] when dropped, so that the end of a call is reported even if its task
/// is aborted or panics.
struct EndGuard {
    hub: Arc<EventHub>,
    id: u64,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.hub.send(DriverEvent::Done(self.id));
    }
}

/// Returns a future that sends a call through the gate and reads the whole response. The result is
/// in the gate's record and in `call`. [`DriverEvent::Done`] is sent even if the future is dropped
/// before its first poll.
pub(super) fn run_call(
    client: Client,
    endpoint: Arc<Endpoint>,
    body: Bytes,
    call: Arc<CallState>,
    hub: Arc<EventHub>,
) -> impl Future<Output = ()> + Send + 'static {
    let end_guard = EndGuard { hub, id: call.id };
    async move {
        let _end_guard = end_guard;
        let mut request = endpoint.request(body);
        let context = Context { call: Some(call.id.to_string().into()), ..Context::default() };
        request.extensions_mut().insert(context);
        request.extensions_mut().insert(CallTag(call));
        if let Ok(response) = client.call(request).await {
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
    }
}
