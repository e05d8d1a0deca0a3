//! Response bodies that the host language (Python or JavaScript) reads one chunk at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use parking_lot::Mutex;
use tidegate::{Error, ResponseBody};

use crate::error::{response_closed, used_after_fork};
use crate::runtime_bound::RuntimeBound;

/// Number of body bytes after which [`BodyStream::read_ahead`] stops reading.
const MAX_READ_AHEAD: usize = 64 * 1024;

/// Number of times that [`BodyStream::read_ahead`] lets other tasks run, for example the task of
/// the connection, because no chunk has arrived. After that, it stops reading. Not used for event
/// streams.
const MAX_YIELDS: usize = 3;

/// The result of one read: a chunk, the error that ended the body, or `None` at the end of the
/// body.
pub type Chunk = Option<Result<Bytes, Error>>;

/// A response body that is read chunk by chunk. Dropping or closing it ends the HTTP exchange at
/// once and releases the slot of its call.
pub struct BodyStream(Mutex<State>);

struct State {
    read_ahead: VecDeque<Bytes>,
    error: Option<Error>,
    /// The unread rest of the body. `None` if the body has ended or failed, or was closed.
    body: Option<OpenBody>,
}

static OPEN_BODIES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of response bodies in the process that still have an unread rest. Each may
/// occupy the slot of its call.
pub fn open_bodies() -> usize {
    OPEN_BODIES.load(Ordering::Relaxed)
}

/// The unread rest of a response body. Counted in [`open_bodies`] until it is dropped.
struct OpenBody(RuntimeBound<ResponseBody>);

impl OpenBody {
    fn new(body: ResponseBody) -> Self {
        OPEN_BODIES.fetch_add(1, Ordering::Relaxed);
        Self(RuntimeBound::in_current(body))
    }
}

impl Drop for OpenBody {
    fn drop(&mut self) {
        OPEN_BODIES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BodyStream {
    /// Creates a stream, and reads the part of the body that has already arrived. Must be called on
    /// a worker thread of the runtime.
    ///
    /// Of an event stream, at most the first chunk is read. Any other body is read until 64 KiB are
    /// read or no more has arrived. If that is the whole body, the slot is released at once, and
    /// the body can be passed to the host language in one piece.
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

    /// Creates a stream for a body of which nothing has been read.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn unread(body: ResponseBody) -> Self {
        let body = Some(OpenBody::new(body));
        Self(Mutex::new(State { read_ahead: VecDeque::new(), error: None, body }))
    }

    /// Returns the whole body if it was read ahead to its end without an error.
    ///
    /// # Errors
    ///
    /// Returns the stream unchanged if a part of the body is unread or the body has failed.
    pub fn into_whole(self) -> Result<Bytes, Self> {
        self.take_whole().ok_or(self)
    }

    /// Removes and returns all chunks as one, if the body was read ahead to its end without an
    /// error. Chunks that were read before are not included. Otherwise returns `None`, and removes
    /// nothing.
    pub fn take_whole(&self) -> Option<Bytes> {
        let mut state = self.0.lock();
        if state.body.is_some() || state.error.is_some() {
            return None;
        }
        let chunks = std::mem::take(&mut state.read_ahead);
        drop(state);
        if chunks.len() < 2 {
            return Some(chunks.into_iter().next().unwrap_or_default());
        }
        let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
        chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        Some(whole.freeze())
    }

    /// Ends the exchange now, and releases its slot. The next read returns an error, unless all
    /// chunks were read before. Idempotent.
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

    /// Polls for the next chunk of the body, which is never empty.
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
        let Some(body) = bound.get_mut() else { return Poll::Ready(Some(Err(used_after_fork()))) };
        // The layers below start timers, which need the runtime.
        let _context = runtime.enter();
        let chunk = std::task::ready!(poll_chunk(body, cx));
        if !matches!(chunk, Some(Ok(_))) || body.is_end_stream() {
            state.body = None;
        }
        Poll::Ready(chunk)
    }

    /// Waits for the next chunk, and returns it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no chunk.
    pub async fn next(&self) -> Chunk {
        poll_fn(|cx| self.poll(cx)).await
    }
}

/// Polls the body for the next chunk that is not empty, and skips trailers. The output is `None` at
/// the end of the body.
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
