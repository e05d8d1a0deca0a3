//! One call: sent through the gate, and read to its end.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate::{Client, Context};

use super::call_state::CallState;
use super::event_hub::{DriverEvent, EventHub};
use super::metering::CallTag;
use crate::endpoint::Endpoint;

/// Tells that a call is over, also where its task is aborted or panics.
struct Over {
    hub: Arc<EventHub>,
    id: u64,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.hub.send(DriverEvent::Done(self.id));
    }
}

/// Whatever comes of it is in the call's record, and in its call. That it is over is told also where it is taken back before it was ever polled.
pub(super) fn call(
    client: Client,
    endpoint: Arc<Endpoint>,
    body: Bytes,
    call: Arc<CallState>,
    hub: Arc<EventHub>,
) -> impl Future<Output = ()> + Send + 'static {
    let over = Over { hub, id: call.id };
    async move {
        let _over = over;
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
