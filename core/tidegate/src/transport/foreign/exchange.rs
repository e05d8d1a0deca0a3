//! The host's handle to one exchange: answers the request and sends the body in chunks.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::Response;

use super::exchange_state::{ExchangeState, State, wake};
use crate::error::{Error, ErrorKind};

/// Maximum number of buffered chunks of the body: one for a waiting reader, and one ahead.
const MAX_CHUNKS: usize = 2;

/// What the host may do after it has sent a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// The host may send the next chunk without waiting.
    Open,
    /// The host must wait for [`Exchange::room`] before it sends the next chunk, because the reader
    /// has not taken this one yet.
    Full,
    /// Nothing more is accepted, because the caller no longer reads the response or the exchange
    /// has failed. The host must stop, end its exchange with the upstream, and drop the
    /// [`Exchange`].
    Closed,
}

/// The handle through which a [`Host`](super::Host) answers one request. It can be used from any
/// thread.
///
/// Dropping it tells the gate that the host has finished. The slot of a cancelled exchange is held
/// until then, at most [`GRACE`](super::GRACE). An exchange that is dropped without
/// [`Exchange::end`] fails with `Transport`.
pub struct Exchange(pub(super) Arc<ExchangeState>);

impl Exchange {
    /// Returns the number of the exchange, which [`Host::cancel`](super::Host::cancel) receives. It
    /// is unique in this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Sends the response's status, headers and extensions to the caller. Returns `false` if the
    /// exchange was cancelled or answered before.
    ///
    /// Extensions are passed on unchanged. A body that is shorter than `content-length` fails as
    /// truncated. A host that decodes bodies must therefore remove `content-length` and
    /// `content-encoding`.
    pub fn answer(&self, head: Response<()>) -> bool {
        let mut state = self.0.state.lock();
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

    /// Sends the next chunk of the body, and returns whether the host may send another. An empty
    /// chunk is ignored. The exchange fails with `Transport` if the host sends a chunk while two
    /// earlier chunks have not been read, instead of waiting for [`Exchange::room`].
    pub fn chunk(&self, chunk: Bytes) -> SendState {
        let mut state = self.0.state.lock();
        if state.is_closed() {
            return SendState::Closed;
        }
        if state.chunks.len() == MAX_CHUNKS && !chunk.is_empty() {
            state.failure = Some(Error::new(
                ErrorKind::Transport,
                "the caller's own transport sent a chunk before the previous one was read",
            ));
            return SendState::Closed;
        }
        let mut reader = None;
        if !chunk.is_empty() {
            state.chunks.push_back(chunk);
            reader = state.reader.take();
        }
        let has_room = reader.is_some() || state.chunks.is_empty();
        drop(state);
        wake(reader);
        if has_room { SendState::Open } else { SendState::Full }
    }

    /// Waits until the host may send the next chunk. Resolves to `true` if it may, and to `false`
    /// if the caller no longer reads the response or the exchange has failed.
    ///
    /// The future does not keep the exchange open: dropping the [`Exchange`] still ends it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Only one future of this method and of [`Exchange::wanted`] can wait at a time.
    pub fn room(&self) -> impl Future<Output = bool> + Send + use<> {
        self.wait_until(|state| state.chunks.is_empty())
    }

    /// Waits until the caller asks for the next chunk. Resolves to `true` if it does, and to
    /// `false` if it no longer reads the response or the exchange has failed.
    ///
    /// Await it before a read from the upstream that blocks the thread. The host then never reads
    /// ahead of the caller, and a chunk that has already arrived is never delayed until the next
    /// one arrives.
    ///
    /// # Cancel safety
    ///
    /// As for [`Exchange::room`].
    pub fn wanted(&self) -> impl Future<Output = bool> + Send + use<> {
        self.wait_until(|state| state.answered && state.reader.is_some())
    }

    /// Returns a future that resolves to `true` when `is_ready` returns `true` for the state, and
    /// to `false` when the exchange is closed.
    fn wait_until(&self, is_ready: fn(&State) -> bool) -> impl Future<Output = bool> + Send + use<> {
        let shared = self.0.clone();
        poll_fn(move |cx| {
            let mut state = shared.state.lock();
            if state.is_closed() {
                return Poll::Ready(false);
            }
            if is_ready(&state) {
                return Poll::Ready(true);
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Returns `true` if the response is no longer read: the future of the call or the response
    /// body was dropped, or the body has delivered a failure.
    pub fn is_cancelled(&self) -> bool {
        self.0.state.lock().gone
    }

    /// Ends the response body successfully. If the request was not answered, the call fails with
    /// `Transport`.
    pub fn end(self) {
        self.close(Ok(()));
    }

    /// Ends the exchange with `error`. The kind of the error determines how the gate treats the
    /// failure; for example, `Connect` and `ConnectTimeout` state that nothing was sent. A host
    /// that needs its own error object back can attach the object as the source
    /// ([`Error::with_source`]).
    pub fn fail(self, error: Error) {
        self.close(Err(error));
    }

    /// Ends the exchange with the result of the host, and releases the slot. Has no effect if the
    /// exchange has already ended.
    fn close(&self, result: Result<(), Error>) {
        let mut state = self.0.state.lock();
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        if let Err(error) = result {
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

impl Drop for Exchange {
    fn drop(&mut self) {
        self.close(Err(Error::new(
            ErrorKind::Transport,
            "the caller's own transport abandoned the exchange",
        )));
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("id", &self.0.id).finish_non_exhaustive()
    }
}
