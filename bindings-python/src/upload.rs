//! A request body that Python produces chunk by chunk.

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Error, ErrorKind, RequestBody};
use tidegate_bindings::{RuntimeBound, UploadChannel};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::bridge::{Outcome, Port, block_on, runtime};
use crate::reply::Answer;

/// The producer's side of a request body. At most one chunk is in transit, so that a slow upstream
/// slows the producer.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Upload(UploadChannel);

#[pymethods]
impl Upload {
    /// Returns an upload that no request has taken.
    #[new]
    fn new() -> Self {
        Self(UploadChannel::new())
    }

    /// Sends a chunk if there is room. Returns True if it was sent, False if there is no room yet,
    /// and None if the reader of the body is gone.
    fn offer(&self, chunk: &[u8]) -> Option<bool> {
        self.0.offer(chunk)
    }

    /// Returns an asyncio future that completes once there is room or the reader is gone, and its
    /// number.
    fn room(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let sender = self.sender()?;
        Port::submit(port, async move {
            drop(sender.reserve().await);
            Room
        })
    }

    /// Ends the body successfully. An upload that ends without this fails its request.
    fn finish(&self) {
        self.0.finish();
    }
}

impl Upload {
    /// Returns the request body, once.
    pub(crate) fn body(&self) -> PyResult<RequestBody> {
        self.0.take_body().ok_or_else(|| PyRuntimeError::new_err("this upload was sent already"))
    }

    /// Returns the sender of chunks, or `RuntimeError` if the upload has ended.
    fn sender(&self) -> PyResult<mpsc::Sender<Bytes>> {
        self.0.sender().ok_or_else(|| PyRuntimeError::new_err("this upload is finished"))
    }
}

/// A call in flight whose request body the caller's own thread produces.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Call {
    state: Mutex<State>,
    abort: RuntimeBound<AbortHandle>,
}

/// The state of a call: in flight, answered but not read, or over.
enum State {
    Running(oneshot::Receiver<Result<Answer, Error>>),
    Answered(Result<Answer, Error>),
    Over,
}

impl Call {
    /// Starts the call on a worker.
    pub(crate) fn start<F>(call: F) -> PyResult<Self>
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let runtime = runtime::handle()?;
        let (sender, answer) = oneshot::channel();
        let task = runtime.spawn(async move {
            // If the receiver is gone, the answer is dropped and its slot is released.
            let _ = sender.send(call.await);
        });
        let abort = RuntimeBound::new(task.abort_handle(), runtime);
        Ok(Self { state: Mutex::new(State::Running(answer)), abort })
    }

    /// Returns the state, and ends the call.
    fn take(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}

#[pymethods]
impl Call {
    /// Sends the next chunk of the upload, and waits for room. Returns False if the answer has
    /// arrived or the reader of the upload is gone.
    fn feed(&self, py: Python<'_>, upload: &Bound<'_, Upload>, chunk: &[u8]) -> PyResult<bool> {
        let (sender, chunk) = (upload.get().sender()?, Bytes::copy_from_slice(chunk));
        let State::Running(mut answer) = self.take() else { return Ok(false) };
        let (state, fed) = block_on(py, async move {
            tokio::select! {
                biased;
                answered = &mut answer => (State::Answered(answered.unwrap_or_else(|_| Err(abandoned()))), false),
                sent = sender.send(chunk) => (State::Running(answer), sent.is_ok()),
            }
        })?;
        *self.state.lock() = state;
        Ok(fed)
    }

    /// Waits for the reply, and returns it or the error.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let answer = match self.take() {
            State::Running(answer) => {
                block_on(py, async move { answer.await.unwrap_or_else(|_| Err(abandoned())) })?
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

/// Returns the error of a call that was dropped.
fn abandoned() -> Error {
    Error::new(ErrorKind::Transport, "the call was abandoned")
}

/// The result of a wait for room. `None` in Python.
struct Room;

impl Outcome for Room {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}
