//! Reads a response into memory before its reader asks for the data, while the caller's task waits
//! for a tool (`yield_slot`). The exchange can then end and release its slot during that wait.
//!
//! # Invariants
//!
//! - The reader gets the same frames and the same error, in the same order, as without reading
//!   ahead.
//! - No generation is ended early: once [`MAX_READ`] bytes are buffered, reading ahead stops. The
//!   reader polls the rest, and the slot stays in use until then.
//! - At any time, either the reader or the read-ahead task polls the body, never both, because the
//!   body stores the waker of only one of them.

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

use super::permit_body::PermitBody;
use crate::admission::{ReadAhead, TaskSlotGuard};
use crate::body::ResponseBody;
use crate::error::Error;
use crate::layers::{memory_of, size_hint_after};

/// Memory in bytes that the buffered frames take when reading ahead stops: 1 MiB.
const MAX_READ: usize = 1024 * 1024;

/// A response body that is polled by its reader or by a read-ahead task, one of them at a time.
struct SharedBody(Mutex<State>);

struct State {
    /// The inner body. `None` once the reader was dropped.
    body: Option<PermitBody>,
    /// The guard that lists the slot among those of the caller's task. `None` once the slot was
    /// released.
    task_slot: Option<TaskSlotGuard>,
    /// Frames that were read ahead and that the reader has not received yet, oldest first.
    read: VecDeque<Result<Frame<Bytes>, Error>>,
    /// Number of data bytes in `read`.
    size: usize,
    /// Number of calls of `start` without a matching call of `stop`. Each belongs to a tool that
    /// the caller's task waits for or holds.
    starts: usize,
    /// Number of read-ahead tasks started so far. Distinguishes the current task from an aborted
    /// one, which may be polled once more.
    generation: u64,
    /// The task that reads ahead. `None` if the reader polls the body.
    task: Option<AbortHandle>,
    /// The waker of the reader. `None` if the reader does not wait for a frame.
    reader: Option<Waker>,
}

/// Wraps the body of a call's response so that it can be read ahead. Returns the body itself if no
/// tools are configured, or if the caller is in no task.
pub(super) fn readable_ahead(body: PermitBody) -> ResponseBody {
    let call = body.call();
    let Some((slots, task)) = call.task_slots().map(|(slots, task)| (slots.clone(), task)) else {
        return ResponseBody::new(body);
    };
    let target = call.target().name().clone();
    ResponseBody::new(Reader(Arc::new_cyclic(|shared: &Weak<SharedBody>| {
        let task_slot = slots.enter(task, &target, Some(shared.clone()));
        SharedBody(Mutex::new(State {
            body: Some(body),
            task_slot: Some(task_slot),
            read: VecDeque::new(),
            size: 0,
            starts: 0,
            generation: 0,
            task: None,
            reader: None,
        }))
    })))
}

impl ReadAhead for SharedBody {
    /// Reads ahead until [`ReadAhead::stop`], until the response has ended, or until the buffered
    /// frames take [`MAX_READ`] bytes.
    fn start(self: Arc<Self>) {
        let mut state = self.0.lock();
        state.starts += 1;
        let is_open = state.body.as_ref().is_some_and(|body| !body.is_end_stream());
        if is_open
            && state.task.is_none()
            && !state.is_full()
            && let Ok(runtime) = Handle::try_current()
        {
            state.generation += 1;
            let task = ReadAheadTask { shared: self.clone(), generation: state.generation };
            state.task = Some(runtime.spawn(task).abort_handle());
        }
    }

    fn stop(&self) {
        let mut state = self.0.lock();
        state.starts -= 1;
        if state.starts == 0 && state.task.is_some() {
            let (task, reader) = state.stop();
            drop(state);
            abort_and_wake(task, reader);
        }
    }
}

impl State {
    /// Ends the read-ahead task, so that the reader polls the body again. Returns the task to abort
    /// and the reader to wake. The caller must do both after releasing the lock.
    fn stop(&mut self) -> (Option<AbortHandle>, Option<Waker>) {
        (self.task.take(), self.reader.take())
    }

    /// Returns `true` if the buffered frames take [`MAX_READ`] bytes of memory.
    fn is_full(&self) -> bool {
        memory_of(self.size, self.read.len()) >= MAX_READ
    }

    /// If the slot was released, removes it from the slots of the caller's task.
    fn check_slot(&mut self) {
        if self.body.as_mut().is_none_or(|body| body.permit().is_none()) {
            self.task_slot = None;
        }
    }

    /// Polls the inner body. If its slot was released meanwhile, removes the slot from those of the
    /// caller's task.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        self.check_slot();
        frame
    }
}

/// The future of a read-ahead task: reads a response into memory before its reader asks for the
/// data.
struct ReadAheadTask {
    shared: Arc<SharedBody>,
    /// The value of `State::generation` for which the task was started. The task ends if it has
    /// changed.
    generation: u64,
}

impl Future for ReadAheadTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut state = self.shared.0.lock();
            if state.task.is_none() || state.generation != self.generation {
                return Poll::Ready(());
            }
            let polled = state.poll_body(cx);
            if let Some(body) = &mut state.body {
                // The connection may stay open after the provider's terminal event.
                body.release_if_complete();
            }
            state.check_slot();
            let frame = ready!(polled);
            let mut is_over = !matches!(frame, Some(Ok(_)));
            if let Some(frame) = frame {
                state.size += size(&frame);
                state.read.push_back(frame);
            }
            is_over |= state.is_full() || state.body.as_ref().is_none_or(PermitBody::is_end_stream);
            let (_, reader) = if is_over { state.stop() } else { (None, state.reader.take()) };
            drop(state);
            abort_and_wake(None, reader);
            if is_over {
                return Poll::Ready(());
            }
        }
    }
}

/// The response body that the caller reads. Dropping it ends the exchange.
struct Reader(Arc<SharedBody>);

impl Body for Reader {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut state = self.0.0.lock();
        if let Some(frame) = state.read.pop_front() {
            state.size -= size(&frame);
            return Poll::Ready(Some(frame));
        }
        let polled = if state.task.is_some() { Poll::Pending } else { state.poll_body(cx) };
        if polled.is_pending() {
            // A read-ahead task that starts later replaces the waker in the body.
            match &mut state.reader {
                Some(reader) => reader.clone_from(cx.waker()),
                None => state.reader = Some(cx.waker().clone()),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.0.lock();
        state.read.is_empty() && state.body.as_ref().is_none_or(PermitBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.0.lock();
        let rest = state.body.as_ref().map_or_else(|| SizeHint::with_exact(0), PermitBody::size_hint);
        size_hint_after(state.size as u64, &rest)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        let (task, reader) = state.stop();
        let dropped = (state.body.take(), state.task_slot.take(), std::mem::take(&mut state.read));
        drop(state);
        // Outside the lock, because releasing the slot wakes other tasks.
        drop(dropped);
        abort_and_wake(task, reader);
    }
}

/// Returns the number of data bytes in a frame. 0 for trailers and errors.
fn size(frame: &Result<Frame<Bytes>, Error>) -> usize {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len)
}

/// Aborts `task` and wakes `reader`, unless they are `None`. Must be called outside the lock,
/// because a waker may run any code.
fn abort_and_wake(task: Option<AbortHandle>, reader: Option<Waker>) {
    if let Some(task) = task {
        task.abort();
    }
    if let Some(reader) = reader {
        reader.wake();
    }
}
