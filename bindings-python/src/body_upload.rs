//! A request body that Python produces chunk by chunk.

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Error, ErrorKind, RequestBody};
use tidegate_bindings::{RuntimeBound, UploadChannel};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::bridge::{LostBodies, Outcome, PendingRead, Port, Ready, block_on, runtime};
use crate::response::{Answer, Reply};

/// The sending side of a streamed request body, whose chunks Python produces. At most one chunk is
/// buffered, so that a slow upstream slows the program.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Upload(UploadChannel);

#[pymethods]
impl Upload {
    /// Creates an open upload, whose body no request has taken yet.
    #[new]
    fn new() -> Self {
        Self(UploadChannel::new())
    }

    /// Sends a chunk without waiting. Returns True if it was sent, False if the previous chunk has
    /// not been read yet, and None if the request no longer reads the body or the upload has ended.
    fn offer(&self, chunk: &[u8]) -> Option<bool> {
        self.0.offer(chunk)
    }

    /// Starts to wait until the upload can take its next chunk or the request no longer reads the
    /// body. Returns an asyncio future that completes then, and the number that cancels the wait.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the upload has ended.
    fn ready(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let sender = self.sender()?;
        Port::submit(port, async move {
            drop(sender.reserve().await);
            Ready
        })
    }

    /// Blocks until the upload can take its next chunk, the request no longer reads the body, or
    /// the next chunk of `reply` has arrived. Returns False in the first two cases, and otherwise
    /// the same as `reply.pull_blocking()`.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the upload has ended, or the exception of a signal handler.
    fn pull_until_ready(&self, py: Python<'_>, reply: &Bound<'_, Reply>) -> PyResult<Py<PyAny>> {
        let (sender, stream) = (self.sender()?, reply.get().stream());
        let _pending = PendingRead::begin();
        let pulled = block_on(py, async {
            tokio::select! {
                biased;
                chunk = stream.next() => Some(chunk),
                _ = sender.reserve() => None,
            }
        })?;
        match pulled {
            Some(chunk) => Box::new(chunk).into_python(py),
            None => Ok(false.into_pyobject(py)?.to_owned().into_any().unbind()),
        }
    }

    /// Ends the body successfully. If the upload is dropped without this call, the request fails.
    fn finish(&self) {
        self.0.finish();
    }

    /// Ends the body with an error, which fails its request.
    fn abandon(&self) {
        self.0.abandon();
    }
}

impl Upload {
    /// Takes the request body out of the upload.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if a request has taken the body already.
    pub(crate) fn body(&self) -> PyResult<RequestBody> {
        self.0.take_body().ok_or_else(|| PyRuntimeError::new_err("this upload was sent already"))
    }

    /// Returns the sender of the upload, with which a caller can wait until the next chunk can be
    /// sent.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the upload has ended.
    fn sender(&self) -> PyResult<mpsc::Sender<Bytes>> {
        self.0.sender().ok_or_else(|| PyRuntimeError::new_err("this upload is finished"))
    }
}

/// A call in flight for which the calling thread produces the request body chunk by chunk. If it is
/// dropped, the call continues, and its response is discarded.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct UploadCall {
    state: Mutex<State>,
    abort: RuntimeBound<AbortHandle>,
    lost_bodies: LostBodies,
}

enum State {
    Running(oneshot::Receiver<Result<Answer, Error>>),
    Answered(Box<Result<Answer, Error>>),
    Over,
}

impl UploadCall {
    /// Starts a call on a worker thread of the runtime. `call` is the future that makes it.
    pub(crate) fn start<F>(call: F, lost_bodies: LostBodies) -> PyResult<Self>
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
        Ok(Self { state: Mutex::new(State::Running(answer)), abort, lost_bodies })
    }

    /// Returns the state of the call, and sets it to `Over`.
    fn take(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}

#[pymethods]
impl UploadCall {
    /// Blocks until the upload can take `chunk`, and sends it. Returns True if the chunk was sent.
    /// Returns False if the call already has a response or an error, or if the request no longer
    /// reads the body.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the upload has ended, or the exception of a signal handler.
    fn feed(&self, py: Python<'_>, upload: &Bound<'_, Upload>, chunk: &[u8]) -> PyResult<bool> {
        let (sender, chunk) = (upload.get().sender()?, Bytes::copy_from_slice(chunk));
        let State::Running(mut answer) = self.take() else { return Ok(false) };
        let (state, fed) = self.lost_bodies.block_on(py, async move {
            tokio::select! {
                biased;
                answered = &mut answer => {
                    let answer = answered.unwrap_or_else(|_| Err(abandoned()));
                    (State::Answered(Box::new(answer)), false)
                }
                sent = sender.send(chunk) => (State::Running(answer), sent.is_ok()),
            }
        })?;
        *self.state.lock() = state;
        Ok(fed)
    }

    /// Blocks until the response head has arrived or the call has failed. Returns the reply, or the
    /// error as an exception object.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let answer = match self.take() {
            State::Running(answer) => {
                let answer = async move { answer.await.unwrap_or_else(|_| Err(abandoned())) };
                Box::new(self.lost_bodies.block_on(py, answer)?)
            }
            State::Answered(answer) => answer,
            State::Over => return Err(PyRuntimeError::new_err("this call is over")),
        };
        answer.into_python(py)
    }

    /// Ends the call at once, and drops its response.
    fn cancel(&self) {
        if let Some(abort) = self.abort.get() {
            abort.abort();
        }
        drop(self.take());
    }
}

/// Returns the error of a call whose task was dropped before it had a result.
fn abandoned() -> Error {
    Error::new(ErrorKind::Transport, "the call was cancelled before it had a response")
}
