//! One call: sent through the gate, and read to its end.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate::{Client, Context};

use super::desk::{Desk, Event};
use super::meter::Tag;
use super::notes::Notes;
use crate::endpoint::Endpoint;

/// Tells that a call is over, also where its task is aborted or panics.
struct Over {
    desk: Arc<Desk>,
    id: u64,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.desk.tell(Event::Done(self.id));
    }
}

/// Whatever comes of it is in the call's record, and in its notes. That it is over is told also where it is taken back before it was ever polled.
pub(super) fn call(
    client: Client,
    endpoint: Arc<Endpoint>,
    body: Bytes,
    notes: Arc<Notes>,
    desk: Arc<Desk>,
) -> impl Future<Output = ()> + Send + 'static {
    let over = Over { desk, id: notes.id };
    async move {
        let _over = over;
        let mut request = endpoint.request(body);
        let context = Context { call: Some(notes.id.to_string().into()), ..Context::default() };
        request.extensions_mut().insert(context);
        request.extensions_mut().insert(Tag(notes));
        if let Ok(response) = client.call(request).await {
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
    }
}
