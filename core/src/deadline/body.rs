//! A body that ends at the deadline, and that a reader must not leave lying.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;

use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::Why;

/// The body, where both its reader and the watch can reach it.
pub(super) struct Cell {
    call: Call,
    stall: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    body: Option<ResponseBody>,
    /// Since when the reader has not asked, where it is the reader's turn.
    unread_since: Option<Instant>,
    error: Option<Error>,
    waker: Option<Waker>,
}

impl Cell {
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let state = self.state.lock();
        // What was read ahead whole is neither late nor holds a slot.
        let is_held = state.body.is_some() && !self.call.is_waiting();
        is_held && (self.call.deadline() <= now || self.is_stalled(&state, now))
    }

    fn is_stalled(&self, state: &State, now: Instant) -> bool {
        match (self.stall, state.unread_since) {
            (Some(limit), Some(since)) => now.saturating_duration_since(since) >= limit,
            _ => false,
        }
    }

    /// Takes the body away: the exchange ends, the slot goes back, and the reader gets an error whenever it comes.
    pub(super) fn close(&self, now: Instant) {
        let (body, waker) = {
            let mut state = self.state.lock();
            state.error = Some(if self.call.deadline() <= now {
                overdue(&self.call, self.call.why())
            } else {
                Error::new(
                    ErrorKind::ReaderStalled,
                    "the response was left unread for longer than the `stall` limit, and its slot was taken back: read or close streams promptly",
                )
                .at(self.call.target().name())
            });
            (state.body.take(), state.waker.take())
        };
        drop(body);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The reader's end.
pub(super) struct Guarded {
    cell: Arc<Cell>,
    deadline: Pin<Box<Sleep>>,
}

impl Guarded {
    pub(super) fn new(call: Call, body: ResponseBody) -> Self {
        let deadline = Box::pin(tokio::time::sleep_until(tokio::time::Instant::from_std(call.deadline())));
        let stall = call.target().config().stall;
        let state = State { body: Some(body), unread_since: Some(clock::now()), error: None, waker: None };
        Self { cell: Arc::new(Cell { call, stall, state: Mutex::new(state) }), deadline }
    }

    pub(super) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let mut state = this.cell.state.lock();
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(body) = &mut state.body else { return Poll::Ready(None) };
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => {
                // Once all has been read, there is nothing left to be late or to be left lying.
                let goes_on = matches!(frame, Some(Ok(_))) && !body.is_end_stream();
                state.unread_since = Some(clock::now());
                let ended = if goes_on { None } else { state.body.take() };
                drop(state);
                drop(ended);
                Poll::Ready(frame)
            }
            Poll::Pending => {
                state.unread_since = None;
                state.waker = Some(cx.waker().clone());
                drop(state);
                if this.deadline.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.cell.close(clock::now());
                let error = this.cell.state.lock().error.take();
                Poll::Ready(error.map(Err))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.cell.state.lock();
        state.error.is_none() && state.body.as_ref().is_none_or(ResponseBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.cell.state.lock();
        state.body.as_ref().map_or_else(SizeHint::default, ResponseBody::size_hint)
    }
}

/// What the deadline says, to a call that waits and to one in flight; `why` it waits, where it stands in the queue.
pub(super) fn overdue(call: &Call, why: Option<Why>) -> Error {
    let (kind, text) = if call.is_waiting() {
        (
            ErrorKind::Refused(Reason::Deadline),
            "the deadline passed before a slot came free (raise `cap` or the deadline, or send less)",
        )
    } else {
        (
            ErrorKind::Deadline,
            "the deadline passed before the response had ended (raise the deadline, or ask for less output)",
        )
    };
    let error = Error::new(kind, text).at(call.target().name()).explained(why);
    match call.last_failure() {
        Some(last) => error.after(last),
        None => error,
    }
}
