//! A request body that JavaScript produces piece by piece.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use napi::{Error as JsError, Result};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Error, ErrorKind, RequestBody};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::bridge::Port;
use crate::kept::Ready;

/// One chunk is on its way at most: a slow upstream slows the producer.
#[napi]
pub struct Upload {
    sender: Mutex<Option<mpsc::Sender<Bytes>>>,
    feed: Mutex<Option<Feed>>,
    finished: Arc<AtomicBool>,
}

#[napi]
impl Upload {
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let (sender, chunks) = mpsc::channel(1);
        let finished = Arc::new(AtomicBool::new(false));
        let feed = Feed { chunks, finished: finished.clone() };
        Self { sender: Mutex::new(Some(sender)), feed: Mutex::new(Some(feed)), finished }
    }

    /// True: taken. False: no room yet, wait for it. Undefined: nobody reads it any more.
    #[napi]
    pub fn offer(&self, chunk: &[u8]) -> Option<bool> {
        let sender = self.sender.lock();
        let sender = sender.as_ref()?;
        match sender.try_reserve() {
            Ok(room) => {
                room.send(Bytes::copy_from_slice(chunk));
                Some(true)
            }
            Err(TrySendError::Full(())) => Some(false),
            Err(TrySendError::Closed(())) => None,
        }
    }

    /// Says with that number once there is room, or nobody reads any more.
    #[napi]
    pub fn room(&self, port: &Port, number: u32) -> Result<()> {
        let sender = self.sender.lock().clone();
        let sender = sender.ok_or_else(|| JsError::from_reason("this upload is finished"))?;
        port.submit(number, async move {
            drop(sender.reserve().await);
            Ready
        });
        Ok(())
    }

    /// The last chunk was taken. Without this the request fails rather than end early.
    #[napi]
    pub fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.sender.lock().take();
    }

    /// The producer failed: so does the request.
    #[napi]
    pub fn give_up(&self) {
        self.sender.lock().take();
    }
}

impl Upload {
    /// The request body that reads it; once.
    pub(crate) fn body(&self) -> Result<RequestBody> {
        let feed = self.feed.lock().take();
        feed.map(RequestBody::stream).ok_or_else(|| JsError::from_reason("this upload was sent already"))
    }
}

struct Feed {
    chunks: mpsc::Receiver<Bytes>,
    finished: Arc<AtomicBool>,
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Error>>> {
        let chunk = std::task::ready!(self.chunks.poll_recv(cx));
        Poll::Ready(match chunk {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None if self.finished.load(Ordering::Acquire) => None,
            None => Some(Err(Error::new(ErrorKind::Request, "the caller gave up the upload"))),
        })
    }
}
