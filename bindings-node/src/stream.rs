//! A response's body as JavaScript pulls it: one chunk a pull, nothing read ahead but what came with the head.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use parking_lot::Mutex;
use tidegate::{Error, ResponseBody};
use tokio::runtime::Handle;

use crate::bridge::{Held, Pull, Pulled};
use crate::failure;

/// The most that is handed over with the head.
const AHEAD: usize = 64 * 1024;

/// How often a body that is about to be complete may let its connection run first.
const YIELDS: usize = 3;

/// What was there of a body when its head was.
pub(crate) enum Begun {
    /// All of it. Its slot is free already.
    Whole(Bytes),
    /// The rest is to be pulled.
    Stream(Stream),
}

/// Dropping it, or [`Stream::close`], ends the exchange at once and gives the slot back.
pub(crate) struct Stream(Mutex<State>);

struct State {
    ahead: VecDeque<Bytes>,
    failed: Option<Error>,
    /// Gone once it ended, failed or was closed.
    body: Option<Open>,
}

/// How many bodies of this process have not ended. Each holds a slot.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A body that has not ended.
struct Open(Held<ResponseBody>);

impl Open {
    fn new(body: ResponseBody) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(Held::new(body, Handle::current()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many bodies have not ended, whoever still has them.
pub(crate) fn open_bodies() -> usize {
    OPEN.load(Ordering::Relaxed)
}

/// Takes what is there with the head, on a worker. A body that is not an event stream and is complete within what the connection holds is
/// taken whole, so that a small answer crosses into JavaScript once and its slot is free at once.
pub(crate) async fn begin(mut body: ResponseBody, events: bool) -> Begun {
    let mut ahead = VecDeque::new();
    let mut failed = None;
    let (mut size, mut yields) = (0, if events { 0 } else { YIELDS });
    let mut open = !body.is_end_stream();
    while open && size < AHEAD {
        match poll_fn(|cx| Poll::Ready(poll_chunk(&mut body, cx))).await {
            Poll::Ready(Some(Ok(chunk))) => {
                size += chunk.len();
                ahead.push_back(chunk);
                open = !body.is_end_stream();
                if events {
                    break;
                }
            }
            Poll::Ready(Some(Err(error))) => {
                failed = Some(error);
                open = false;
            }
            Poll::Ready(None) => open = false,
            Poll::Pending if yields > 0 => {
                yields -= 1;
                tokio::task::yield_now().await;
            }
            Poll::Pending => break,
        }
    }
    if !open && failed.is_none() {
        return Begun::Whole(joined(ahead, size));
    }
    let body = open.then(|| Open::new(body));
    Begun::Stream(Stream(Mutex::new(State { ahead, failed, body })))
}

fn joined(mut chunks: VecDeque<Bytes>, size: usize) -> Bytes {
    if chunks.len() < 2 {
        return chunks.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(size);
    chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
    whole.freeze()
}

impl Stream {
    /// Ends it now. Idempotent. Whoever still reads is told, unless everything was read.
    pub(crate) fn close(&self) {
        let gone = {
            let mut state = self.0.lock();
            if state.body.is_some() || !state.ahead.is_empty() {
                state.failed = Some(failure::closed());
            }
            (state.body.take(), std::mem::take(&mut state.ahead))
        };
        drop(gone);
    }
}

/// The next chunk that holds bytes; trailers are skipped.
fn poll_chunk(body: &mut ResponseBody, cx: &mut Context<'_>) -> Poll<Pulled> {
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

impl Pull for Stream {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Pulled> {
        let mut state = self.0.lock();
        if let Some(chunk) = state.ahead.pop_front() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(error) = state.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(Open(held)) = &mut state.body else { return Poll::Ready(None) };
        let runtime = held.runtime().clone();
        // Layers below start timers, which belong to the runtime.
        let _context = runtime.enter();
        let Some(body) = held.get_mut() else { return Poll::Ready(None) };
        let pulled = std::task::ready!(poll_chunk(body, cx));
        let over = !matches!(pulled, Some(Ok(_))) || body.is_end_stream();
        if over {
            state.body = None;
        }
        Poll::Ready(pulled)
    }
}
