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
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::bridge::{Held, Outcome, Port, block_on, runtime};
use crate::reply::Answer;

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
    fn room(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let sender = self.sender()?;
        Port::submit(port, async move {
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

/// A call under way whose body its own thread feeds.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Call {
    state: Mutex<State>,
    abort: Held<AbortHandle>,
}

enum State {
    Running(oneshot::Receiver<Result<Answer, Error>>),
    Answered(Result<Answer, Error>),
    Over,
}

impl Call {
    pub(crate) fn start<F>(call: F) -> PyResult<Self>
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let runtime = runtime::handle()?;
        let (done, answer) = oneshot::channel();
        let task = runtime.spawn(async move {
            // Nobody waits any more: the answer, and its slot, is dropped.
            let _ = done.send(call.await);
        });
        Ok(Self { state: Mutex::new(State::Running(answer)), abort: Held::new(task.abort_handle(), runtime) })
    }

    fn take(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}

#[pymethods]
impl Call {
    /// Gives the upload its next chunk, waiting for room. False: the answer is there, or nobody reads the upload any more.
    fn feed(&self, py: Python<'_>, upload: &Bound<'_, Upload>, chunk: &[u8]) -> PyResult<bool> {
        let (sender, chunk) = (upload.get().sender()?, Bytes::copy_from_slice(chunk));
        let State::Running(mut answer) = self.take() else { return Ok(false) };
        let (state, fed) = block_on(py, async move {
            tokio::select! {
                biased;
                answered = &mut answer => (State::Answered(answered.unwrap_or_else(|_| Err(lost()))), false),
                sent = sender.send(chunk) => (State::Running(answer), sent.is_ok()),
            }
        })?;
        *self.state.lock() = state;
        Ok(fed)
    }

    /// Waits for the reply, or error.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let answer = match self.take() {
            State::Running(answer) => {
                block_on(py, async move { answer.await.unwrap_or_else(|_| Err(lost())) })?
            }
            State::Answered(answer) => answer,
            State::Over => return Err(PyRuntimeError::new_err("this call is over")),
        };
        Box::new(answer).into_python(py)
    }

    /// Drops the call at once.
    fn cancel(&self) {
        if let Some(abort) = self.abort.get() {
            abort.abort();
        }
        drop(self.take());
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Transport, "the call was given up")
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
