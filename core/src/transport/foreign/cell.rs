//! What the two sides of an exchange share: one small state behind one lock, never held while a waker, the host or a slot is touched.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Exchange, GRACE, Host, Room, quietly};
use crate::admission::ReleaseGuard;
use crate::error::{Error, ErrorKind};

/// One chunk for a reader that waits, and one ahead of it.
const MOST_CHUNKS: usize = 2;

pub(super) struct Cell {
    pub(super) id: u64,
    host: Arc<dyn Host>,
    /// Where the grace runs.
    runtime: Option<Handle>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    head: Option<Response<()>>,
    answered: bool,
    chunks: VecDeque<Bytes>,
    /// The host's side is over.
    ended: bool,
    /// How it ended, where not well; told to the reader once.
    failure: Option<Error>,
    /// The reader's side is over.
    gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    release_guard: Option<ReleaseGuard>,
    grace: Option<AbortHandle>,
}

/// The two ends of a new exchange.
pub(super) fn open(id: u64, host: Arc<dyn Host>, release_guard: Option<ReleaseGuard>) -> (Reader, Exchange) {
    let state = Mutex::new(State { release_guard, ..State::default() });
    let cell = Arc::new(Cell { id, host, runtime: Handle::try_current().ok(), state });
    (Reader(cell.clone()), Exchange::new(cell))
}

/// The host's side.
impl Cell {
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

    pub(super) fn chunk(&self, chunk: Bytes) -> Room {
        let mut state = self.state.lock();
        if state.gone || state.failure.is_some() {
            return Room::Gone;
        }
        let reader = if chunk.is_empty() {
            None
        } else if state.chunks.len() < MOST_CHUNKS {
            state.chunks.push_back(chunk);
            state.reader.take()
        } else {
            state.failure = Some(Error::new(
                ErrorKind::Transport,
                "the caller's own transport sent on before there was room for it",
            ));
            return Room::Gone;
        };
        let room = if reader.is_some() || state.chunks.is_empty() { Room::Now } else { Room::Later };
        drop(state);
        wake(reader);
        room
    }

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

    pub(super) fn is_cancelled(&self) -> bool {
        self.state.lock().gone
    }

    /// The host's side is over. The first word counts.
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

/// The core's side. Dropping it before the host is done cancels the exchange.
pub(super) struct Reader(Arc<Cell>);

impl Reader {
    /// Until the host answers.
    pub(super) async fn head(&self) -> Result<Response<()>, Error> {
        poll_fn(|cx| {
            let mut state = self.0.state.lock();
            if let Some(head) = state.head.take() {
                return Poll::Ready(Ok(head));
            }
            if state.ended {
                let error = state.failure.take().unwrap_or_else(|| {
                    Error::new(ErrorKind::Transport, "the caller's own transport ended without an answer")
                });
                return Poll::Ready(Err(error));
            }
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The next chunk, the failure, or the end.
    pub(super) fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let mut state = self.0.state.lock();
        if let Some(chunk) = state.chunks.pop_front() {
            let writer = if state.chunks.is_empty() { state.writer.take() } else { None };
            drop(state);
            wake(writer);
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(error) = state.failure.take() {
            // What a host says after it failed is not read.
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

    /// Whether all was read, and it ended well.
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

/// Lets the slot go after a while, whatever the host does.
fn grace(cell: &Arc<Cell>) {
    let patience = Patience(cell.clone());
    // Without a runtime there is no clock: then, and where the runtime shuts down, the slot goes at once.
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

/// Waits for a host; lets the slot go when dropped.
struct Patience(Arc<Cell>);

impl Drop for Patience {
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
