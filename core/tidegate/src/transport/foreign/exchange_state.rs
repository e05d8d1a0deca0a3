//! The state that the core's side and the host's side of an exchange share.
//!
//! One lock guards the state. It is never held while a waker, the host or a slot is touched.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Exchange, GRACE, Host, SendState, quietly};
use crate::admission::ReleaseGuard;
use crate::error::{Error, ErrorKind};

/// The largest number of buffered chunks: one for a waiting reader, and one ahead.
const MOST_CHUNKS: usize = 2;

/// The shared state of one exchange.
pub(super) struct ExchangeState {
    pub(super) id: u64,
    host: Arc<dyn Host>,
    /// The runtime that times the grace period; `None` if the exchange was opened outside a
    /// runtime.
    runtime: Option<Handle>,
    state: Mutex<State>,
}

/// The part of the state that the lock guards.
#[derive(Default)]
struct State {
    head: Option<Response<()>>,
    answered: bool,
    chunks: VecDeque<Bytes>,
    /// Whether the host has ended the exchange.
    ended: bool,
    /// The failure that the reader receives next. Taken when it is delivered.
    failure: Option<Error>,
    /// Whether the reader was dropped, or stopped after a failure.
    gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    release_guard: Option<ReleaseGuard>,
    grace: Option<AbortHandle>,
}

/// Opens an exchange and returns its two ends: the core's reader and the host's handle.
pub(super) fn open(id: u64, host: Arc<dyn Host>, release_guard: Option<ReleaseGuard>) -> (Reader, Exchange) {
    let state = Mutex::new(State { release_guard, ..State::default() });
    let cell = Arc::new(ExchangeState { id, host, runtime: Handle::try_current().ok(), state });
    (Reader(cell.clone()), Exchange::new(cell))
}

/// Methods for the host's side.
impl ExchangeState {
    /// Passes the response head to the reader. Returns `false` if the exchange was cancelled or
    /// answered before.
    pub(super) fn answer(&self, head: Response<()>) -> bool {
        let mut state = self.state.lock();
        if state.gone || state.answered {
            return false;
        }
        state.answered = true;
        state.head = Some(head);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        true
    }

    /// Buffers the next chunk. Returns whether the host may send another.
    pub(super) fn chunk(&self, chunk: Bytes) -> SendState {
        let mut state = self.state.lock();
        if state.gone || state.failure.is_some() {
            return SendState::Closed;
        }
        let reader = if chunk.is_empty() {
            None
        } else if state.chunks.len() < MOST_CHUNKS {
            state.chunks.push_back(chunk);
            state.reader.take()
        } else {
            state.failure = Some(Error::new(
                ErrorKind::Transport,
                "the caller's own transport sent a chunk before the previous one was read",
            ));
            return SendState::Closed;
        };
        let room =
            if reader.is_some() || state.chunks.is_empty() { SendState::Open } else { SendState::Full };
        drop(state);
        wake(reader);
        room
    }

    /// Polls until there is room for a chunk (`true`) or the reader is gone (`false`).
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if state.gone || state.failure.is_some() {
            return Poll::Ready(false);
        }
        if state.chunks.is_empty() {
            return Poll::Ready(true);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Polls until the reader waits for a chunk (`true`) or is gone (`false`).
    pub(super) fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if state.gone || state.failure.is_some() {
            return Poll::Ready(false);
        }
        if state.answered && state.reader.is_some() {
            return Poll::Ready(true);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns `true` if the reader is gone.
    pub(super) fn is_cancelled(&self) -> bool {
        self.state.lock().gone
    }

    /// Ends the exchange with the host's result, and releases the slot. Later calls have no effect.
    pub(super) fn close(&self, how: Result<(), Error>) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        if let Err(error) = how {
            state.failure.get_or_insert(error);
        }
        let reader = state.reader.take();
        let (release_guard, grace) = (state.release_guard.take(), state.grace.take());
        drop(state);
        if let Some(grace) = grace {
            grace.abort();
        }
        drop(release_guard);
        wake(reader);
    }
}

/// The core's end of an exchange. Dropping it before the host has ended the exchange cancels it.
pub(super) struct Reader(Arc<ExchangeState>);

impl Reader {
    /// Waits for the response head.
    ///
    /// # Errors
    ///
    /// The host's error, or `Transport` if the host ended the exchange without answering.
    pub(super) async fn head(&self) -> Result<Response<()>, Error> {
        poll_fn(|cx| {
            let mut state = self.0.state.lock();
            if let Some(head) = state.head.take() {
                return Poll::Ready(Ok(head));
            }
            if state.ended {
                let error = state.failure.take().unwrap_or_else(|| {
                    Error::new(ErrorKind::Transport, "the caller's own transport ended without a response")
                });
                return Poll::Ready(Err(error));
            }
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Polls for the next chunk or the failure; `None` at the end of the body.
    pub(super) fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let mut state = self.0.state.lock();
        if let Some(chunk) = state.chunks.pop_front() {
            let writer = if state.chunks.is_empty() { state.writer.take() } else { None };
            drop(state);
            wake(writer);
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(error) = state.failure.take() {
            // A host that failed without ending the exchange is not read any further.
            state.gone = state.gone || !state.ended;
            return Poll::Ready(Some(Err(error)));
        }
        if state.ended || state.gone {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        let writer = state.writer.take();
        drop(state);
        wake(writer);
        Poll::Pending
    }

    /// Returns `true` if the host ended without failure and all chunks were read.
    pub(super) fn is_over(&self) -> bool {
        let state = self.0.state.lock();
        state.ended && state.failure.is_none() && state.chunks.is_empty()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let cell = &self.0;
        let mut state = cell.state.lock();
        state.gone = true;
        let writer = state.writer.take();
        let unread = (state.head.take(), std::mem::take(&mut state.chunks));
        let ended = state.ended;
        drop(state);
        drop(unread);
        wake(writer);
        if ended {
            return;
        }
        quietly(|| cell.host.cancel(cell.id));
        if cell.state.lock().release_guard.is_some() {
            grace(cell);
        }
    }
}

/// Releases the slot of a cancelled exchange after [`GRACE`], unless the host ends it first.
fn grace(cell: &Arc<ExchangeState>) {
    let patience = ReleaseOnTimeout(cell.clone());
    // Without a runtime there is no clock, so the slot is released at once. The same happens when
    // the runtime shuts down and drops the task.
    let Some(runtime) = &cell.runtime else { return };
    let task = runtime.spawn(async move {
        tokio::time::sleep(GRACE).await;
        drop(patience);
    });
    let mut state = cell.state.lock();
    if state.ended {
        drop(state);
        task.abort();
    } else {
        state.grace = Some(task.abort_handle());
    }
}

/// Releases the slot of a cancelled exchange when dropped.
struct ReleaseOnTimeout(Arc<ExchangeState>);

impl Drop for ReleaseOnTimeout {
    fn drop(&mut self) {
        let release_guard = self.0.state.lock().release_guard.take();
        drop(release_guard);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
