//! An exchange, as the Python code that serves it holds it.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::transport::foreign::{self, Room};
use tidegate::{Error, ErrorKind};

use super::{Extensions, Letter, Open};
use crate::bridge::{Held, Outcome, Port};

/// One exchange. Losing it, or [`Exchange::close`], says that this side is over: until then a cancelled one keeps its slot.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Exchange {
    open: Mutex<Option<Held<Open>>>,
    number: u64,
    changes: Vec<(HeaderName, HeaderValue)>,
    /// Where it goes, where the gate changed that; else None.
    #[pyo3(get)]
    url: Option<String>,
    /// Seconds for which anybody can wait for it; None without a limit.
    #[pyo3(get)]
    patience: Option<f64>,
    /// Where a task serves it.
    port: Option<Py<Port>>,
}

impl Exchange {
    pub(super) fn new(letter: Letter, port: Option<Py<Port>>) -> Self {
        let Letter { open, changes, url, patience } = letter;
        let number = open.get().map_or(0, |open| open.exchange.id());
        let patience = patience.map(|patience| patience.as_secs_f64());
        Self { open: Mutex::new(Some(open)), number, changes, url, patience, port }
    }

    /// Does something with it, where it is still open on this side of a fork.
    pub(super) fn with<T>(&self, what: impl FnOnce(&foreign::Exchange) -> T) -> Option<T> {
        self.open.lock().as_ref().and_then(Held::get).map(|open| what(&open.exchange))
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn take(&self) -> Option<foreign::Exchange> {
        let held = self.open.lock().take();
        held.and_then(Held::into_inner).map(|open| open.exchange)
    }
}

#[pymethods]
impl Exchange {
    /// The headers that the gate changed: `[(name, value), ...]`.
    fn changes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in &self.changes {
            let value: String = value.as_bytes().iter().copied().map(char::from).collect();
            list.append((name.as_str(), value))?;
        }
        Ok(list)
    }

    /// Whether nobody waits for it any more.
    #[getter]
    pub(super) fn cancelled(&self) -> bool {
        self.with(foreign::Exchange::is_cancelled).unwrap_or(true)
    }

    /// The request's body was read to its end: from now on the answer can be late.
    fn sent(&self) {
        let mut open = self.open.lock();
        let body = open.as_mut().and_then(Held::get_mut).and_then(|open| open.body.take());
        drop(open);
        drop(body);
    }

    /// The head of the answer. False: nobody waits for it.
    fn answer(&self, status: u16, headers: &Bound<'_, PyList>, extensions: Py<PyAny>) -> PyResult<bool> {
        let mut head = Response::builder().status(status);
        for pair in headers.iter() {
            let pair = pair.cast::<PyTuple>()?;
            let (name, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
            head = head.header(name.cast::<PyBytes>()?.as_bytes(), value.cast::<PyBytes>()?.as_bytes());
        }
        match head.extension(Extensions(Arc::new(extensions))).body(()) {
            Ok(head) => Ok(self.with(|exchange| exchange.answer(head)).unwrap_or(false)),
            Err(error) => {
                if let Some(exchange) = self.take() {
                    let text = format!("the client's own transport answered with a malformed head: {error}");
                    exchange.fail(Error::new(ErrorKind::Transport, text));
                }
                Ok(false)
            }
        }
    }

    /// The next chunk. True: go on. False: wait for room, or until it is wanted. None: nobody reads any more.
    fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        let chunk = Bytes::copy_from_slice(chunk);
        match self.with(|exchange| exchange.chunk(chunk))? {
            Room::Now => Some(true),
            Room::Later => Some(false),
            Room::Gone => None,
        }
    }

    /// The asyncio future of whether to go on, and its number.
    fn room(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let room = self.with(foreign::Exchange::room);
        Port::submit(port, async move {
            GoOn(match room {
                Some(room) => room.await,
                None => false,
            })
        })
    }

    /// The body is whole.
    fn end(&self) {
        if let Some(exchange) = self.take() {
            exchange.end();
        }
    }

    /// It failed: as what, and with which exception, which comes out where the gate hands the failure up.
    pub(super) fn fail(&self, kind: &str, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = format!("the client's own transport raised {}", exception.get_type().name()?);
        let error = match kind {
            // No connection was free in the client's own pool: nothing was sent, and the target had no part in it.
            "pool" => Error::new(ErrorKind::ConnectTimeout, text).local(),
            // The host itself said that nobody listens there.
            "refused" => Error::new(ErrorKind::Connect, text).nobody_listens(),
            _ => Error::new(kind_of(kind), text),
        };
        let error = error.because(PyErr::from_value(exception.clone()));
        if let Some(exchange) = self.take() {
            exchange.fail(error);
        }
        Ok(())
    }

    /// This side is over. Idempotent.
    #[pyo3(signature = (*_arguments))]
    fn close(&self, _arguments: &Bound<'_, PyTuple>) {
        let open = self.open.lock().take();
        drop(open);
        if let Some(port) = &self.port {
            port.get().served(self.number);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.port)
    }
}

fn kind_of(kind: &str) -> ErrorKind {
    const KINDS: [ErrorKind; 6] = [
        ErrorKind::Connect,
        ErrorKind::ConnectTimeout,
        ErrorKind::FirstTokenTimeout,
        ErrorKind::IdleTimeout,
        ErrorKind::Transport,
        ErrorKind::Truncated,
    ];
    // What nobody knows is not repeated.
    KINDS.into_iter().find(|known| known.as_str() == kind).unwrap_or(ErrorKind::Request)
}

struct GoOn(bool);

impl Outcome for GoOn {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}
