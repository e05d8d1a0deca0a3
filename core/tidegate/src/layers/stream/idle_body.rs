//! A body that is passed on without being observed, and that fails if the upstream is silent for
//! too long.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::error_outcome::timed_out;
use crate::body::ResponseBody;
use crate::call::Call;
use crate::error::{Error, ErrorKind};
use tidegate_policy::outcome::FailureCause;

/// The body of an error response or of a redirect. It fails if no chunk arrives for `limit` while
/// the reader waits.
struct IdleBody {
    call: Call,
    /// `None` once the body has failed.
    body: Option<ResponseBody>,
    limit: Duration,
    /// The side that is at fault if the limit passes.
    cause: FailureCause,
    /// The end of the present silence. `None` if the last poll found a frame.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Returns the body with the limits on the time between two chunks that apply to the call.
pub(super) fn limit_silence(call: &Call, body: ResponseBody) -> ResponseBody {
    match call.idle_limit() {
        Some((limit, cause)) if !body.has_arrived() => {
            ResponseBody::new(IdleBody { call: call.clone(), body: Some(body), limit, cause, timer: None })
        }
        _ => body,
    }
}

/// Returns the error of a response that was silent for too long.
pub(super) fn silence_error() -> Error {
    let text = "the stream was silent for longer than the `idle` limit or the client's read timeout";
    Error::new(ErrorKind::IdleTimeout, text)
}

impl Body for IdleBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            this.timer = None;
            return Poll::Ready(frame);
        }
        let limit = this.limit;
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        this.body = None;
        Poll::Ready(Some(Err(timed_out(&this.call, silence_error(), this.cause))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ResponseBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, ResponseBody::size_hint)
    }
}
