//! Exchanges that the thread which made the call serves, while it waits.
//!
//! The call is driven by that thread alone: nothing is handed to another one and back. While the thread is in its transport the call rests, so
//! that no attempt is begun, and no slot taken, which nobody could serve. Nor is it called back there when its pool's replica goes down: its client's
//! read timeout ends the attempt.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::Request;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::transport::foreign::{self, Host};
use tidegate::{Error, RequestBody};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Exchange, Letter, Original};
use crate::bridge::{Held, Outcome, block_on, runtime};
use crate::errors;
use crate::reply::Answer;

/// The host of one call: the thread that made it.
pub(crate) struct OnThread {
    letters: UnboundedSender<Letter>,
    original: Original,
}

impl Host for OnThread {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        // Nobody waits any more: the exchange goes.
        let _ = self.letters.send(Letter::new(request, exchange, &self.original));
    }

    /// The thread finds out when it is back from its transport, which nobody else can interrupt.
    fn cancel(&self, _: u64) {}
}

type Running = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

enum State {
    Running(Running, UnboundedReceiver<Letter>),
    Answered(Result<Answer, Error>),
}

enum Event {
    Answer(Result<Answer, Error>),
    Begin(Letter),
    Wanted,
}

/// A call under way whose exchanges its own thread serves.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct KeptCall(Mutex<Option<Held<State>>>);

impl KeptCall {
    /// Prepares what `call` makes of its host.
    pub(crate) fn new<F>(original: Original, call: impl FnOnce(OnThread) -> F) -> PyResult<Self>
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let (sender, letters) = unbounded_channel();
        let call = Box::pin(call(OnThread { letters: sender, original }));
        let call = Held::new(State::Running(call, letters), runtime::handle()?);
        Ok(Self(Mutex::new(Some(call))))
    }

    fn take(&self) -> PyResult<Held<State>> {
        self.0.lock().take().ok_or_else(|| PyRuntimeError::new_err("this call is over"))
    }

    /// Lets the gate have its word: a deadline may have passed while the thread was away.
    fn look(&self) -> PyResult<()> {
        let mut held = self.take()?;
        let runtime = held.runtime().clone();
        let _context = runtime.enter();
        if let Some(State::Running(call, _)) = held.get_mut()
            && let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            held = Held::new(State::Answered(answer), runtime.clone());
        }
        *self.0.lock() = Some(held);
        Ok(())
    }
}

#[pymethods]
impl KeptCall {
    /// Goes on until something is to be done: an exchange to serve, the reply, or the error. None: the exchange at hand should go on, since somebody
    /// waits for its next chunk, or nobody does any more.
    fn wait(&self, py: Python<'_>, exchange: Option<&Bound<'_, Exchange>>) -> PyResult<Py<PyAny>> {
        let held = self.take()?;
        let runtime = held.runtime().clone();
        let (mut call, mut letters) = match held.into_inner() {
            Some(State::Running(call, letters)) => (call, letters),
            Some(State::Answered(answer)) => return Box::new(answer).into_python(py),
            None => return errors::instance(py, &errors::forked()),
        };
        let wanted = exchange.and_then(|exchange| exchange.get().with(foreign::Exchange::wanted));
        let wanted = async move {
            match wanted {
                Some(wanted) => wanted.await,
                None => std::future::pending().await,
            }
        };
        let (event, call, letters) = block_on(py, async move {
            let event = tokio::select! {
                biased;
                answer = &mut call => Event::Answer(answer),
                Some(letter) = letters.recv() => Event::Begin(letter),
                _ = wanted => Event::Wanted,
            };
            (event, call, letters)
        })?;
        let outcome = match event {
            Event::Answer(answer) => return Box::new(answer).into_python(py),
            Event::Begin(letter) => Py::new(py, Exchange::new(letter, None))?.into_any(),
            Event::Wanted => py.None(),
        };
        *self.0.lock() = Some(Held::new(State::Running(call, letters), runtime));
        Ok(outcome)
    }

    /// As `Exchange.fail`, but what the gate has to say of it by now counts first.
    fn fail(&self, exchange: &Bound<'_, Exchange>, kind: &str, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.look()?;
        exchange.get().fail(kind, exception)
    }

    /// Drops the call at once.
    fn cancel(&self) {
        let call = self.0.lock().take();
        drop(call);
    }
}
