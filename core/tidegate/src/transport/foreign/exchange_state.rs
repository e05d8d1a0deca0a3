//! The state that the two ends of an exchange share: the [`Reader`] in the core, and the
//! [`Exchange`] of the host.
//!
//! One lock guards the state. It is not held while a waker is woken, the host is called, or a slot
//! is released.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Exchange, GRACE, Host, quietly};
use crate::admission::ReleaseGuard;
use crate::error::{Error, ErrorKind};

/// The state of one exchange, shared by its reader and its host.
pub(super) struct ExchangeState {
    pub(super) id: u64,
    host: Arc<dyn Host>,
    /// The runtime on which the grace period is timed. `None` if the exchange was opened outside a
    /// runtime.
    runtime: Option<Handle>,
    pub(super) state: Mutex<State>,
}

/// The part of [`ExchangeState`] that the lock guards.
#[derive(Default)]
pub(super) struct State {
    /// The response head until the reader takes it. `None` before the head arrives and after the
    /// reader has taken it.
    pub(super) head: Option<Response<()>>,
    /// `true` once the host has sent the response head.
    pub(super) answered: bool,
    /// The chunks of the body that the reader has not taken yet, oldest first.
    pub(super) chunks: VecDeque<Bytes>,
    /// `true` once the host has ended the exchange.
    pub(super) ended: bool,
    /// The failure that the reader receives after the remaining chunks. `None` if the exchange has
    /// not failed, or if the reader has received the failure.
    pub(super) failure: Option<Error>,
    /// `true` once the reader was dropped, or has received a failure and is not read any further.
    pub(super) gone: bool,
    /// The waker of the reader while it waits for the head or a chunk. `None` if it does not wait.
    pub(super) reader: Option<Waker>,
    /// The waker of the host while it waits in [`Exchange::room`] or [`Exchange::wanted`]. `None`
    /// if it does not wait.
    pub(super) writer: Option<Waker>,
    /// The guard that keeps the slot of the call in use. `None` if the call has no slot, and after
    /// the release.
    pub(super) release_guard: Option<ReleaseGuard>,
    /// Aborts the task that releases the slot after [`GRACE`]. `None` if no such task is running.
    pub(super) grace: Option<AbortHandle>,
}

/// Opens an exchange and returns its two ends: the core's reader and the host's handle.
pub(super) fn open(id: u64, host: Arc<dyn Host>, release_guard: Option<ReleaseGuard>) -> (Reader, Exchange) {
    let state = Mutex::new(State { release_guard, ..State::default() });
    let shared = Arc::new(ExchangeState { id, host, runtime: Handle::try_current().ok(), state });
    (Reader(shared.clone()), Exchange(shared))
}

impl State {
    /// Returns `true` if the host cannot deliver anything more, because the response is no longer
    /// read or the exchange has failed.
    pub(super) fn is_closed(&self) -> bool {
        self.gone || self.failure.is_some()
    }
}

/// The end of an exchange through which the core reads the response. Dropping it before the host
/// has ended the exchange cancels the exchange.
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

    /// Polls for the next chunk of the body, or for the failure of the exchange. Returns `None` at
    /// the end of the body.
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

    /// Returns `true` if the host has ended the exchange without a failure, and all chunks have
    /// been read.
    pub(super) fn is_over(&self) -> bool {
        let state = self.0.state.lock();
        state.ended && state.failure.is_none() && state.chunks.is_empty()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let shared = &self.0;
        let mut state = shared.state.lock();
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
        quietly(|| shared.host.cancel(shared.id));
        if shared.state.lock().release_guard.is_some() {
            start_grace(shared);
        }
    }
}

/// Starts the timer that releases the slot of a cancelled exchange after [`GRACE`], unless the host
/// ends the exchange earlier.
fn start_grace(shared: &Arc<ExchangeState>) {
    let release = ReleaseOnTimeout(shared.clone());
    // Without a runtime there is no clock, so the slot is released at once. The same happens when
    // the runtime shuts down and drops the task.
    let Some(runtime) = &shared.runtime else { return };
    let task = runtime.spawn(async move {
        tokio::time::sleep(GRACE).await;
        drop(release);
    });
    let mut state = shared.state.lock();
    if state.ended {
        drop(state);
        task.abort();
    } else {
        state.grace = Some(task.abort_handle());
    }
}

/// A guard that releases the slot of a cancelled exchange when the guard is dropped: after the
/// grace period, or earlier if its timer is dropped.
struct ReleaseOnTimeout(Arc<ExchangeState>);

impl Drop for ReleaseOnTimeout {
    fn drop(&mut self) {
        let release_guard = self.0.state.lock().release_guard.take();
        drop(release_guard);
    }
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
