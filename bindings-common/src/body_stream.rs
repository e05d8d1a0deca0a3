//! Response bodies that a reader of the host language pulls, chunk by chunk.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use parking_lot::Mutex;
use tidegate::{Error, ResponseBody};

use crate::error::{forked, response_closed};
use crate::runtime_bound::RuntimeBound;

/// The largest number of bytes that are read ahead with the head.
const MAX_READ_AHEAD: usize = 64 * 1024;

/// The number of times that the connection may make progress before an incomplete body counts as a
/// stream.
const MAX_YIELDS: usize = 3;

/// A chunk of a body, the end (`None`), or the error that ended the body.
pub type Chunk = Option<Result<Bytes, Error>>;

/// A response body. Dropping or closing it ends the exchange at once and releases the slot.
pub struct BodyStream(Mutex<State>);
/// The state of a body.
struct State {
    read_ahead: VecDeque<Bytes>,
    error: Option<Error>,
    /// `None` after the end, an error or a close.
    body: Option<OpenBody>,
}

static OPEN_BODIES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of bodies in the process that have not ended. Each holds a slot.
pub fn open_bodies() -> usize {
    OPEN_BODIES.load(Ordering::Relaxed)
}

/// A body that has not ended.
struct OpenBody(RuntimeBound<ResponseBody>);

impl OpenBody {
    fn new(body: ResponseBody) -> Self {
        OPEN_BODIES.fetch_add(1, Ordering::Relaxed);
        Self(RuntimeBound::here(body))
    }
}

impl Drop for OpenBody {
    fn drop(&mut self) {
        OPEN_BODIES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BodyStream {
    /// Creates a body and reads the part that has arrived with the head. Runs on a worker of the
    /// runtime.
    ///
    /// An event stream is read up to its first chunk. Any other body is read completely if the
    /// connection has received all of it. A small body then crosses into the host language once,
    /// and its slot is released at once.
    pub async fn read_ahead(mut body: ResponseBody, is_event_stream: bool) -> Self {
        let mut read_ahead = VecDeque::new();
        let mut error = None;
        let (mut size, mut yields) = (0, if is_event_stream { 0 } else { MAX_YIELDS });
        let mut is_open = !body.is_end_stream();
        while is_open && size < MAX_READ_AHEAD {
            match poll_fn(|cx| Poll::Ready(poll_chunk(&mut body, cx))).await {
                Poll::Ready(Some(Ok(chunk))) => {
                    size += chunk.len();
                    read_ahead.push_back(chunk);
                    is_open = !body.is_end_stream();
                    if is_event_stream {
                        break;
                    }
                }
                Poll::Ready(Some(Err(failure))) => {
                    error = Some(failure);
                    is_open = false;
                }
                Poll::Ready(None) => is_open = false,
                Poll::Pending if yields > 0 => {
                    yields -= 1;
                    tokio::task::yield_now().await;
                }
                Poll::Pending => break,
            }
        }
        let body = is_open.then(|| OpenBody::new(body));
        Self(Mutex::new(State { read_ahead, error, body }))
    }

    /// Returns a body of which nothing has been read. Panics outside a runtime.
    pub fn unread(body: ResponseBody) -> Self {
        let body = Some(OpenBody::new(body));
        Self(Mutex::new(State { read_ahead: VecDeque::new(), error: None, body }))
    }

    /// Returns the whole body if all of it has been read ahead without an error.
    ///
    /// # Errors
    ///
    /// Returns the stream if the body continues or failed.
    pub fn into_whole(self) -> Result<Bytes, Self> {
        let mut state = self.0.into_inner();
        if state.body.is_some() || state.error.is_some() {
            return Err(Self(Mutex::new(state)));
        }
        if state.read_ahead.len() < 2 {
            return Ok(state.read_ahead.pop_front().unwrap_or_default());
        }
        let size = state.read_ahead.iter().map(Bytes::len).sum();
        let mut whole = BytesMut::with_capacity(size);
        state.read_ahead.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        Ok(whole.freeze())
    }

    /// Ends the body now. Later reads fail, unless the body had been read to its end. Idempotent.
    pub fn close(&self) {
        let dropped = {
            let mut state = self.0.lock();
            if state.body.is_some() || !state.read_ahead.is_empty() {
                state.error = Some(response_closed());
            }
            (state.body.take(), std::mem::take(&mut state.read_ahead))
        };
        drop(dropped);
    }

    /// Polls for the next chunk.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Chunk> {
        let mut state = self.0.lock();
        if let Some(chunk) = state.read_ahead.pop_front() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(OpenBody(bound)) = &mut state.body else { return Poll::Ready(None) };
        let runtime = bound.runtime().clone();
        let Some(body) = bound.get_mut() else { return Poll::Ready(Some(Err(forked()))) };
        // The layers below start timers, which need the runtime.
        let _context = runtime.enter();
        let chunk = std::task::ready!(poll_chunk(body, cx));
        if !matches!(chunk, Some(Ok(_))) || body.is_end_stream() {
            state.body = None;
        }
        Poll::Ready(chunk)
    }

    /// Waits for the next chunk.
    pub async fn next(&self) -> Chunk {
        poll_fn(|cx| self.poll(cx)).await
    }
}

/// Polls for the next chunk that is not empty. Trailers are skipped.
fn poll_chunk(body: &mut ResponseBody, cx: &mut Context<'_>) -> Poll<Chunk> {
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) if !chunk.is_empty() => return Poll::Ready(Some(Ok(chunk))),
                Ok(_) | Err(_) => {}
            },
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        }
    }
}
