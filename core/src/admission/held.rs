//! A response's body that holds the permit until the response ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use super::{Linger, Permit, attempt};
use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::Error;

/// Holds a permit, first for the attempt's future, then for its body. Gives it back at the end, on failure, or when dropped.
pub(super) struct Held {
    call: Call,
    permit: Option<(Permit, Linger)>,
    recall: Option<Arc<Notify>>,
    body: Option<ResponseBody>,
}

impl Held {
    pub(super) fn new(call: Call, mut permit: Permit, linger: Linger) -> Self {
        let recall = if call.has_spare() {
            permit.recall()
        } else {
            // It could not be made again, and so is not called back.
            permit.answered();
            None
        };
        Self { call, permit: Some((permit, linger)), recall, body: None }
    }

    pub(super) fn permit(&mut self) -> Option<&mut Permit> {
        self.permit.as_mut().map(|(permit, _)| permit)
    }

    /// Until the call is called back; never, where its target does not do that, or where it could not be made again.
    pub(super) fn recalled(&mut self) -> impl Future<Output = ()> + use<> {
        let recall = self.recall.take();
        async move {
            match recall {
                Some(recall) => recall.notified().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The head of an answer came.
    pub(super) fn answered(&mut self) {
        if let Some(permit) = self.permit() {
            permit.answered();
        }
    }

    pub(super) fn over(mut self, body: ResponseBody) -> Self {
        if body.is_end_stream() {
            self.release();
        }
        self.body = Some(body);
        self
    }

    /// The exchange goes first, then the slot: whoever gets the slot must not find the upstream still busy with us.
    fn release(&mut self) {
        self.body = None;
        self.hand_back();
    }

    /// The slot alone, where the provider's own end was seen: nothing runs upstream any more, whatever the connection does.
    pub(super) fn hand_back_if_answered(&mut self) {
        let mut complete = false;
        self.call.attempt(|attempt| complete = attempt.complete);
        if complete {
            self.hand_back();
        }
    }

    fn hand_back(&mut self) {
        if let Some((mut permit, linger)) = self.permit.take() {
            attempt::settle(&self.call, &mut permit);
            linger.leave(permit);
            self.call.attempt(|attempt| attempt.released_at = Some(clock::now()));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        // Many readers never ask for the end once they have all that was announced.
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            this.release();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ResponseBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), ResponseBody::size_hint)
    }
}
