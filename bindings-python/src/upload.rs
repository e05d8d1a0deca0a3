//! A request body that Python produces piece by piece.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Error, ErrorKind, RequestBody};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::bridge::{Outcome, Port};

/// One chunk is on its way at most: a slow upstream slows the producer.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Upload {
    sender: Mutex<Option<mpsc::Sender<Bytes>>>,
    feed: Mutex<Option<Feed>>,
    finished: Arc<AtomicBool>,
}

#[pymethods]
impl Upload {
    #[new]
    fn new() -> Self {
        let (sender, chunks) = mpsc::channel(1);
        let finished = Arc::new(AtomicBool::new(false));
        let feed = Feed { chunks, finished: finished.clone() };
        Self { sender: Mutex::new(Some(sender)), feed: Mutex::new(Some(feed)), finished }
    }

    /// True: taken. False: no room yet, wait for it. None: nobody reads it any more.
    fn offer(&self, chunk: &[u8]) -> Option<bool> {
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

    /// An asyncio future that is done once there is room, or nobody reads any more; and its number.
    fn room(&self, py: Python<'_>, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let sender = self.sender()?;
        port.get().submit(py, async move {
            drop(sender.reserve().await);
            Room
        })
    }

    /// Says that the last chunk was taken. Without it the request fails rather than end early.
    fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.sender.lock().take();
    }
}

impl Upload {
    /// The request body that reads it; once.
    pub(crate) fn body(&self) -> PyResult<RequestBody> {
        let feed = self.feed.lock().take();
        feed.map(RequestBody::stream).ok_or_else(|| PyRuntimeError::new_err("this upload was sent already"))
    }

    pub(crate) fn sender(&self) -> PyResult<mpsc::Sender<Bytes>> {
        self.sender.lock().clone().ok_or_else(|| PyRuntimeError::new_err("this upload is finished"))
    }
}

struct Room;

impl Outcome for Room {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
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
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let chunk = std::task::ready!(self.chunks.poll_recv(cx));
        Poll::Ready(match chunk {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None if self.finished.load(Ordering::Acquire) => None,
            None => Some(Err(Error::new(ErrorKind::Request, "the caller gave up the upload"))),
        })
    }
}
