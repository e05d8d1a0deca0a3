//! Exchanges that the thread which made the call serves, while it waits.

use http::{HeaderMap, Request};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::transport::foreign::{self, Host};
use tidegate::{Error, ErrorKind, RequestBody};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::{Exchange, Letter};
use crate::bridge::{Held, Outcome, block_on, runtime};
use crate::reply::Answer;

enum Event {
    Begin(Letter),
    Answer(Result<Answer, Error>),
}

/// The host of one call: the thread that made it.
pub(crate) struct OnThread {
    events: UnboundedSender<Event>,
    original: HeaderMap,
}

impl Host for OnThread {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        let letter = Letter::new(request, exchange, &self.original);
        // Nobody waits any more: the exchange goes.
        let _ = self.events.send(Event::Begin(letter));
    }

    /// The thread finds out when it is back from its transport, which nobody else can interrupt.
    fn cancel(&self, _: u64) {}
}

/// A call under way whose exchanges its own thread serves.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct KeptCall {
    events: Mutex<Option<UnboundedReceiver<Event>>>,
    task: Mutex<Option<Held<JoinHandle<()>>>>,
}

impl KeptCall {
    /// Starts what `call` makes of its host. `original`: the headers as the client sends them.
    pub(crate) fn start<F>(original: HeaderMap, call: impl FnOnce(OnThread) -> F) -> PyResult<Self>
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let runtime = runtime::handle()?;
        let (sender, events) = unbounded_channel();
        let call = call(OnThread { events: sender.clone(), original });
        let task = runtime.spawn(async move {
            // Nobody waits any more: the answer, and its slot, is dropped.
            let _ = sender.send(Event::Answer(call.await));
        });
        let task = Mutex::new(Some(Held::new(task, runtime)));
        Ok(Self { events: Mutex::new(Some(events)), task })
    }
}

#[pymethods]
impl KeptCall {
    /// Waits for what comes next: an exchange to serve, the reply, or the error. None: the exchange at hand should go on, since somebody waits for
    /// its next chunk, or nobody does any more.
    fn wait(&self, py: Python<'_>, exchange: Option<&Bound<'_, Exchange>>) -> PyResult<Py<PyAny>> {
        let wanted = exchange.and_then(|exchange| exchange.get().with(foreign::Exchange::wanted));
        let events = self.events.lock().take();
        let mut events = events.ok_or_else(|| PyRuntimeError::new_err("this call is over"))?;
        let (events, event) = block_on(py, async move {
            let event = match wanted {
                Some(wanted) => tokio::select! {
                    biased;
                    event = events.recv() => Some(event),
                    _ = wanted => None,
                },
                None => Some(events.recv().await),
            };
            (events, event)
        })?;
        let outcome = match event {
            Some(Some(Event::Answer(answer))) => return Box::new(answer).into_python(py),
            Some(Some(Event::Begin(letter))) => Py::new(py, Exchange::new(letter, None))?.into_any(),
            None => py.None(),
            Some(None) => {
                let lost = Error::new(ErrorKind::Transport, "the call was given up");
                return Box::new(Err::<Answer, _>(lost)).into_python(py);
            }
        };
        *self.events.lock() = Some(events);
        Ok(outcome)
    }

    /// Drops the call at once; it is gone when this returns.
    fn cancel(&self, py: Python<'_>) {
        let events = self.events.lock().take();
        drop(events);
        let task = self.task.lock().take();
        if let Some(task) = task.and_then(Held::into_inner) {
            task.abort();
            // What interrupts this is one interruption more of what is ending already.
            let _ = block_on(py, task);
        }
    }
}
