//! A response body that is closed at the deadline, or when its reader stops reading.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;

use super::watch::{BodyWatch, WatchGuard};
use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind, Reason};

/// A response body that can be closed by its reader ([`DeadlineBody`]) and by the task in
/// `watch.rs`.
pub(super) struct OpenBody {
    call: Call,
    /// Maximum time from the moment the reader receives a frame until it asks for the next one. Set
    /// by the target's `stall`. `None` if unlimited, and for requests that need no slot.
    stall: Option<Duration>,
    reader: Arc<Reader>,
    state: Mutex<State>,
}

struct State {
    /// The inner body. `None` once it has ended or was closed.
    body: Option<ResponseBody>,
    /// The error that the reader gets next, because the body was closed. `None` if the body was not
    /// closed, or if the reader has already got the error.
    error: Option<Error>,
}

/// The task that reads a body. Receives the wake-ups of the inner body, which show when a frame is
/// there that the task has asked for and does not read.
struct Reader(Mutex<ReaderState>);

struct ReaderState {
    /// Since when the reader has left the response head or a frame unread. `None` while it waits
    /// for a frame.
    unread_since: Option<Instant>,
    /// The waker of the reader. `None` if it has never waited.
    waker: Option<Waker>,
}

impl Reader {
    /// Records that the reader asks for a frame, and is woken by `waker`.
    fn on_read(&self, waker: &Waker) {
        let mut state = self.0.lock();
        state.unread_since = None;
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            None => state.waker = Some(waker.clone()),
        }
    }

    /// Records that a frame is ready for the reader, unless one was before.
    fn on_frame(&self) {
        self.0.lock().unread_since.get_or_insert_with(clock::now);
    }

    fn wake_task(&self) {
        let waker = self.0.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for Reader {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.on_frame();
        self.wake_task();
    }
}

impl OpenBody {
    /// Returns `true` if the body is open, its deadline or `stall` limit has passed, and the call
    /// holds a slot or needs none. Returns `false` if the body is being polled, and does not wait
    /// for the end of the poll.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let Some(state) = self.state.try_lock() else { return false };
        // A response that was read ahead whole has released its slot.
        let is_in_flight = state.body.is_some() && !self.call.is_waiting();
        is_in_flight && (self.call.deadline() <= now || self.is_stalled(now))
    }

    /// Returns `true` if the reader has left a frame unread for the `stall` limit or longer.
    fn is_stalled(&self, now: Instant) -> bool {
        match (self.stall, self.reader.0.lock().unread_since) {
            (Some(limit), Some(since)) => now.saturating_duration_since(since) >= limit,
            _ => false,
        }
    }

    /// Closes the body at `now`: drops the inner body, which ends the exchange and releases the
    /// slot. The next read returns an error, which depends on whether the deadline has passed. Does
    /// nothing if the body has ended.
    pub(super) fn close(&self, now: Instant) {
        let body = {
            let mut state = self.state.lock();
            // The reader may have got the last frame meanwhile.
            let Some(body) = state.body.take() else { return };
            state.error = Some(if self.call.deadline() <= now {
                overdue_in_flight(&self.call)
            } else {
                Error::new(
                    ErrorKind::ReaderStalled,
                    "the response was not read for longer than the `stall` limit, so it was closed and its slot released: read or close streams promptly",
                )
                .at(self.call.target().name())
            });
            body
        };
        drop(body);
        self.reader.wake_task();
    }
}

/// The response body that the reader polls. While the reader waits for a frame, this body also
/// closes itself at the deadline.
pub(super) struct DeadlineBody {
    /// The body, shared with the task that closes overdue bodies (`watch.rs`).
    open_body: Arc<OpenBody>,
    /// A timer that resolves at the deadline of the call. Polled only while the reader waits for a
    /// frame.
    deadline: Pin<Box<Sleep>>,
    /// Wakes the reader. Given to the inner body.
    waker: Waker,
    /// Removes the body from those that the task checks.
    _watch_guard: WatchGuard,
}

impl DeadlineBody {
    /// Wraps `body`. `watch` closes it if it is not read.
    pub(super) fn new(call: Call, body: ResponseBody, watch: &Arc<BodyWatch>) -> Self {
        let deadline = Box::pin(tokio::time::sleep_until(tokio::time::Instant::from_std(call.deadline())));
        let stall = call.target().config().stall.filter(|_| call.is_inference());
        let unread = ReaderState { unread_since: Some(clock::now()), waker: None };
        let reader = Arc::new(Reader(Mutex::new(unread)));
        let waker = Waker::from(reader.clone());
        let state = Mutex::new(State { body: Some(body), error: None });
        let open_body = Arc::new(OpenBody { call, stall, reader, state });
        Self { _watch_guard: watch.add(open_body.clone()), open_body, deadline, waker }
    }
}

impl Body for DeadlineBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let mut state = this.open_body.state.lock();
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(body) = &mut state.body else { return Poll::Ready(None) };
        let reader = &this.open_body.reader;
        reader.on_read(cx.waker());
        match Pin::new(&mut *body).poll_frame(&mut Context::from_waker(&this.waker)) {
            Poll::Ready(frame) => {
                // A body that has ended holds no slot.
                let goes_on = matches!(frame, Some(Ok(_))) && !body.is_end_stream();
                reader.on_frame();
                let ended = if goes_on { None } else { state.body.take() };
                drop(state);
                drop(ended);
                Poll::Ready(frame)
            }
            Poll::Pending => {
                drop(state);
                if this.deadline.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.open_body.close(clock::now());
                let error = this.open_body.state.lock().error.take();
                Poll::Ready(error.map(Err))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.open_body.state.lock();
        state.error.is_none() && state.body.as_ref().is_none_or(ResponseBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.open_body.state.lock();
        state.body.as_ref().map_or_else(SizeHint::default, ResponseBody::size_hint)
    }
}

/// Returns the error of a call without a response whose deadline has passed and that is not queued:
/// it is in flight, backs off, or has its prompt counted.
pub(super) fn overdue(call: &Call) -> Error {
    if !call.is_waiting() {
        return overdue_in_flight(call);
    }
    let text = match call.current_attempt() {
        None => "the deadline passed while the prompt was being counted (raise the deadline)",
        Some(_) => "the deadline passed before the next attempt (raise the deadline)",
    };
    overdue_error(call, ErrorKind::Refused(Reason::Deadline), text)
}

/// Returns the error of a call whose deadline has passed after its request was sent and before its
/// response ended.
fn overdue_in_flight(call: &Call) -> Error {
    let text = "the deadline passed before the response ended (raise the deadline, or request less output)";
    overdue_error(call, ErrorKind::Deadline, text)
}

/// Returns an error with the target of the call and the failure class of its last failed attempt.
fn overdue_error(call: &Call, kind: ErrorKind, text: &str) -> Error {
    let error = Error::new(kind, text).at(call.target().name()).with_earlier_attempt_sent(call.was_sent());
    match call.last_failure() {
        Some(last) => error.with_last_failure(last),
        None => error,
    }
}
