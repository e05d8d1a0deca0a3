//! The host's end of an exchange.

use std::future::{Future, poll_fn};
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::cell::Cell;
use crate::error::{Error, ErrorKind};

/// Whether the host should go on reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Read the next chunk.
    Now,
    /// Wait for [`Exchange::room`] first: the reader has not taken this one.
    Later,
    /// Nobody reads any more: stop, end the exchange upstream, and drop this.
    Gone,
}

/// One exchange, as the host holds it. Usable from any thread.
///
/// Dropping it says that the host's side is over, and is what a cancelled exchange waits for before its slot is free. Dropped without
/// [`Exchange::end`] it fails: as an answer that broke off, or that never came (`Transport`).
pub struct Exchange(Arc<Cell>);

impl Exchange {
    pub(super) fn new(cell: Arc<Cell>) -> Self {
        Self(cell)
    }

    /// The number that [`super::Host::cancel`] names it by; of this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The status and headers as they came, and extensions, which are handed up untouched. `content-length` is taken at its word (a shorter body
    /// is truncated), so that a host which decodes bodies must remove it, and `content-encoding` with it.
    ///
    /// False: not wanted, for it was cancelled or answered before.
    pub fn answer(&self, head: Response<()>) -> bool {
        self.0.answer(head)
    }

    /// The next chunk of the body. An empty one says nothing. A host that sends on when told to wait fails its exchange (`Transport`).
    pub fn chunk(&self, chunk: Bytes) -> Room {
        self.0.chunk(chunk)
    }

    /// Resolves once there is room for the next chunk: true; or nobody reads any more: false.
    ///
    /// The future does not hold the exchange: dropping that is the acknowledgement, whoever still waits.
    ///
    /// *Cancellation safety*: dropping the future changes nothing. One of this and [`Exchange::wanted`] waits at a time.
    pub fn room(&self) -> impl Future<Output = bool> + Send + use<> {
        let cell = self.0.clone();
        poll_fn(move |cx| cell.poll_room(cx))
    }

    /// Resolves once somebody waits for a chunk that is not there: true; or nobody reads any more: false. For a host that can do nothing else while it
    /// reads: it reads nothing ahead, and so never stands between a reader and what is there already.
    ///
    /// *Cancellation safety*: as [`Exchange::room`].
    pub fn wanted(&self) -> impl Future<Output = bool> + Send + use<> {
        let cell = self.0.clone();
        poll_fn(move |cx| cell.poll_wanted(cx))
    }

    /// Whether nobody waits for it any more.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// The body is whole.
    pub fn end(self) {
        self.0.close(Ok(()));
    }

    /// It failed; the kind decides what the gate makes of it: `Connect` and `ConnectTimeout` say that nothing was sent. What the host wants back,
    /// where this error is handed up, goes along as its source ([`Error::because`]).
    pub fn fail(self, error: Error) {
        self.0.close(Err(error));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0
            .close(Err(Error::new(ErrorKind::Transport, "the caller's own transport gave up the exchange")));
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("id", &self.0.id).finish_non_exhaustive()
    }
}
