//! Reading an answer ahead of its reader, while the reader's task waits for a tool and holds it (`yield_slot`): the exchange ends by itself, and its
//! slot is back.
//!
//! Invariants: the reader gets every frame and the failure, if there is one, in order, as if nobody had read ahead. No generation is ended
//! early: what does not fit into [`MOST`] is left to the reader, and the slot with it. One of the two polls the body at a time, so that
//! the waker which the body keeps is the right one.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::body::Held;
use crate::admission::{ReadAhead, TaskSlotGuard};
use crate::body::ResponseBody;
use crate::call::Call;
use crate::error::Error;

/// Bytes. Once so much is read ahead of the reader, no more is.
const MOST: usize = 1024 * 1024;

/// An answer, where both its reader and whoever reads ahead can reach it.
struct Ahead(Mutex<State>);

struct State {
    held: Option<Held>,
    task_slot: Option<TaskSlotGuard>,
    /// Read ahead, oldest first.
    read: VecDeque<Result<Frame<Bytes>, Error>>,
    /// Bytes of it.
    size: usize,
    /// How many tools ask for it.
    wanted: usize,
    /// It is being read ahead: until then, and after, the reader polls the body.
    running: bool,
    /// Tells one reading ahead from the next: what was ended may be polled once more.
    turn: u64,
    pump: Option<AbortHandle>,
    reader: Option<Waker>,
}

/// The body of a call's answer. Where tools are configured, one that can be read ahead.
pub(super) fn over(call: &Call, held: Held) -> ResponseBody {
    let Some((task_slots, task)) = call.task_slots().filter(|_| !held.is_end_stream()) else {
        return ResponseBody::new(held);
    };
    ResponseBody::new(Reader(Arc::new_cyclic(|ahead: &Weak<Ahead>| {
        let task_slot = task_slots.enter(task, call.target().name(), Some(ahead.clone()));
        Ahead(Mutex::new(State {
            held: Some(held),
            task_slot: Some(task_slot),
            read: VecDeque::new(),
            size: 0,
            wanted: 0,
            running: false,
            turn: 0,
            pump: None,
            reader: None,
        }))
    })))
}

impl ReadAhead for Ahead {
    /// Reads ahead until it is stopped, the answer has ended, or it is too long.
    fn start(self: Arc<Self>) {
        let mut state = self.0.lock();
        state.wanted += 1;
        let open = state.held.as_ref().is_some_and(|held| !held.is_end_stream());
        if open
            && !state.running
            && state.size < MOST
            && let Ok(runtime) = Handle::try_current()
        {
            state.running = true;
            state.turn += 1;
            let pump = Pump { ahead: self.clone(), turn: state.turn };
            state.pump = Some(runtime.spawn(pump).abort_handle());
        }
    }

    fn stop(&self) {
        let mut state = self.0.lock();
        state.wanted -= 1;
        if state.wanted == 0 && state.running {
            let (pump, reader) = state.stop();
            drop(state);
            end(pump, reader);
        }
    }
}

impl State {
    /// Nobody reads ahead any more: the reader polls the body again. What is returned is to be done outside the lock.
    fn stop(&mut self) -> (Option<AbortHandle>, Option<Waker>) {
        self.running = false;
        (self.pump.take(), self.reader.take())
    }

    /// The slot may be back by now.
    fn look(&mut self) {
        if self.held.as_mut().is_none_or(|held| held.permit().is_none()) {
            self.task_slot = None;
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(held) = &mut self.held else { return Poll::Ready(None) };
        let frame = Pin::new(held).poll_frame(cx);
        self.look();
        frame
    }
}

/// The task that reads ahead.
struct Pump {
    ahead: Arc<Ahead>,
    turn: u64,
}

impl Future for Pump {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut state = self.ahead.0.lock();
            if !state.running || state.turn != self.turn {
                return Poll::Ready(());
            }
            let polled = state.poll_body(cx);
            if let Some(held) = &mut state.held {
                // Whatever the connection does after the provider's own end.
                held.hand_back_if_answered();
            }
            state.look();
            let frame = ready!(polled);
            let mut over = !matches!(frame, Some(Ok(_)));
            if let Some(frame) = frame {
                state.size += size(&frame);
                state.read.push_back(frame);
            }
            over |= state.size >= MOST || state.held.as_ref().is_none_or(Held::is_end_stream);
            let (_, reader) = if over { state.stop() } else { (None, state.reader.take()) };
            drop(state);
            end(None, reader);
            if over {
                return Poll::Ready(());
            }
        }
    }
}

/// The reader's end. Dropping it ends the exchange.
struct Reader(Arc<Ahead>);

impl Body for Reader {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut state = self.0.0.lock();
        if let Some(frame) = state.read.pop_front() {
            state.size -= size(&frame);
            return Poll::Ready(Some(frame));
        }
        let polled = if state.running { Poll::Pending } else { state.poll_body(cx) };
        if polled.is_pending() {
            // Whoever begins to read ahead takes the body's own waker away.
            match &mut state.reader {
                Some(reader) => reader.clone_from(cx.waker()),
                None => state.reader = Some(cx.waker().clone()),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.0.lock();
        state.read.is_empty() && state.held.as_ref().is_none_or(Held::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.0.lock();
        let rest = state.held.as_ref().map_or_else(|| SizeHint::with_exact(0), Held::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + state.size as u64);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + state.size as u64);
        }
        hint
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        let (pump, reader) = state.stop();
        let gone = (state.held.take(), state.task_slot.take(), std::mem::take(&mut state.read));
        drop(state);
        // The slot goes back here, and that wakes others.
        drop(gone);
        end(pump, reader);
    }
}

fn size(frame: &Result<Frame<Bytes>, Error>) -> usize {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len)
}

/// Outside the lock: a waker may run anything.
fn end(pump: Option<AbortHandle>, reader: Option<Waker>) {
    if let Some(pump) = pump {
        pump.abort();
    }
    if let Some(reader) = reader {
        reader.wake();
    }
}
