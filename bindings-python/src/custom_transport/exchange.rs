//! An exchange that Python code makes.

use std::sync::Arc;

use http::Response;
use http::header::{HeaderName, HeaderValue};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::transport::foreign;
use tidegate::{Error, ErrorKind};
use tidegate_bindings::{ExchangeHandle, ExchangeOffer, transport_error};

use crate::bridge::{Outcome, Port};
use crate::reply::Extensions;

/// One exchange. Dropping or closing it reports that the client's own transport has finished. A
/// cancelled exchange keeps its slot until then.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Exchange {
    exchange: ExchangeHandle,
    changed_headers: Vec<(HeaderName, HeaderValue)>,
    /// The URL, if the gate changed it, otherwise None.
    #[pyo3(get)]
    url: Option<String>,
    /// The seconds for which the call can wait for the exchange; None without a limit.
    #[pyo3(get)]
    patience: Option<f64>,
    /// The port of the event loop, if a task makes the exchange.
    port: Option<Py<Port>>,
}

impl Exchange {
    pub(super) fn new(offer: ExchangeOffer, port: Option<Py<Port>>) -> Self {
        let ExchangeOffer { exchange, changed_headers, changed_url: url, max_wait } = offer;
        Self { exchange, changed_headers, url, patience: max_wait.map(|wait| wait.as_secs_f64()), port }
    }

    /// Returns the number that identifies the exchange in cancellations.
    pub(super) fn id(&self) -> u64 {
        self.exchange.id()
    }

    /// Returns a future of whether the next chunk is wanted, unless the exchange is over.
    pub(super) fn wanted(&self) -> Option<impl Future<Output = bool> + Send + use<>> {
        self.exchange.with(foreign::Exchange::wanted)
    }
}

#[pymethods]
impl Exchange {
    /// Returns the headers that the gate changed: `[(name, value), ...]`.
    fn changes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in &self.changed_headers {
            let value: String = value.as_bytes().iter().copied().map(char::from).collect();
            list.append((name.as_str(), value))?;
        }
        Ok(list)
    }

    /// Whether the exchange was cancelled or has ended.
    #[getter]
    pub(super) fn cancelled(&self) -> bool {
        self.exchange.is_cancelled()
    }

    /// Reports that the request body was read to its end. The time limit of the response starts
    /// here.
    fn sent(&self) {
        self.exchange.on_body_sent();
    }

    /// Passes on the response head. Returns False if the exchange was cancelled.
    fn answer(&self, status: u16, headers: &Bound<'_, PyList>, extensions: Py<PyAny>) -> PyResult<bool> {
        let mut head = Response::builder().status(status);
        for pair in headers.iter() {
            let pair = pair.cast::<PyTuple>()?;
            let (name, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
            head = head.header(name.cast::<PyBytes>()?.as_bytes(), value.cast::<PyBytes>()?.as_bytes());
        }
        match head.extension(Extensions(Arc::new(extensions))).body(()) {
            Ok(head) => Ok(self.exchange.answer(head)),
            Err(error) => {
                let text = format!("the client's own transport answered with a malformed head: {error}");
                self.exchange.fail(Error::new(ErrorKind::Transport, text));
                Ok(false)
            }
        }
    }

    /// Passes on the next chunk. Returns True if the transport may continue, False if it must wait
    /// for room first, and None if the reader is gone.
    fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        self.exchange.chunk(chunk)
    }

    /// Returns the asyncio future of whether to continue, and its number.
    fn room(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let room = self.exchange.room();
        Port::submit(port, async move { Continue(room.await) })
    }

    /// Ends the body successfully.
    fn end(&self) {
        self.exchange.end();
    }

    /// Ends the exchange with an error of this kind, whose cause is the exception.
    pub(super) fn fail(&self, kind: &str, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = format!("the client's own transport raised {}", exception.get_type().name()?);
        let cause = PyErr::from_value(exception.clone());
        self.exchange.fail(transport_error(kind, text).with_source(cause));
        Ok(())
    }

    /// Reports that the client's own transport has finished. Idempotent.
    #[pyo3(signature = (*_arguments))]
    fn close(&self, _arguments: &Bound<'_, PyTuple>) {
        self.exchange.close();
        if let Some(port) = &self.port {
            port.get().remove_exchange_task(self.exchange.id());
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.port)
    }
}

/// Whether the transport should continue with the exchange.
struct Continue(bool);

impl Outcome for Continue {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}
