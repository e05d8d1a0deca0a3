//! Request bodies that a program produces chunk by chunk.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tidegate::{Error, ErrorKind, RequestBody};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The sending side of a streamed request body, whose chunks a program in the host language
/// produces. The channel buffers at most one chunk, so that a slow upstream slows the program.
pub struct UploadChannel {
    sender: Mutex<Option<Sender<Bytes>>>,
    body: Mutex<Option<UploadBody>>,
    is_finished: Arc<AtomicBool>,
}

impl UploadChannel {
    /// Creates an open channel. [`Self::take_body`] returns the request body that reads from it.
    #[allow(clippy::new_without_default, reason = "each channel is one upload")]
    pub fn new() -> Self {
        let (sender, chunks) = channel(1);
        let is_finished = Arc::new(AtomicBool::new(false));
        let body = UploadBody { chunks, is_finished: is_finished.clone() };
        Self { sender: Mutex::new(Some(sender)), body: Mutex::new(Some(body)), is_finished }
    }

    /// Sends a chunk without waiting. Returns `Some(true)` if it was sent, `Some(false)` if the
    /// previous chunk has not been read yet, and `None` if the request no longer reads the body or
    /// the upload has ended.
    pub fn offer(&self, chunk: &[u8]) -> Option<bool> {
        let sender = self.sender.lock();
        match sender.as_ref()?.try_reserve() {
            Ok(room) => {
                room.send(Bytes::copy_from_slice(chunk));
                Some(true)
            }
            Err(TrySendError::Full(())) => Some(false),
            Err(TrySendError::Closed(())) => None,
        }
    }

    /// Returns the sender of the channel, with which a caller can wait until the next chunk can be
    /// sent. `None` if the upload has ended.
    pub fn sender(&self) -> Option<Sender<Bytes>> {
        self.sender.lock().clone()
    }

    /// Ends the body successfully, unless it was abandoned before. If the channel is dropped
    /// without this call, the request fails.
    pub fn finish(&self) {
        let sender = self.sender.lock().take();
        if sender.is_some() {
            self.is_finished.store(true, Ordering::Release);
        }
    }

    /// Ends the body with an error, which fails its request.
    pub fn abandon(&self) {
        self.sender.lock().take();
    }

    /// Returns the request body, which reads from the channel. `None` after the first call.
    pub fn take_body(&self) -> Option<RequestBody> {
        self.body.lock().take().map(RequestBody::stream)
    }
}

/// The receiving side of a streamed request body. The transport reads it.
struct UploadBody {
    chunks: Receiver<Bytes>,
    is_finished: Arc<AtomicBool>,
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let chunk = std::task::ready!(self.chunks.poll_recv(cx));
        Poll::Ready(match chunk {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None if self.is_finished.load(Ordering::Acquire) => None,
            None => Some(Err(Error::new(ErrorKind::Request, "the caller abandoned the upload"))),
        })
    }
}
