//! An exchange that Python code makes with the client's own transport, instead of the gate's
//! transport.

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
use crate::response::Extensions;

/// One exchange that the client's own transport makes. Dropping or closing it reports that the
/// transport has finished. A cancelled exchange occupies its slot until then, but at most 5 s.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Exchange {
    exchange: ExchangeHandle,
    changed_headers: Vec<(HeaderName, HeaderValue)>,
    /// The URL at the replica that the gate has chosen. None if the gate did not change the URL.
    #[pyo3(get)]
    url: Option<String>,
    /// The maximum time, in seconds, that the call waits for progress of the exchange; None if the
    /// exchange belongs to no call.
    #[pyo3(get)]
    max_wait: Option<f64>,
    /// The port of the event loop whose task makes the exchange; `None` if a thread makes it.
    port: Option<Py<Port>>,
}

impl Exchange {
    pub(super) fn new(offer: ExchangeOffer, port: Option<Py<Port>>) -> Self {
        let ExchangeOffer { exchange, changed_headers, changed_url: url, max_wait } = offer;
        Self { exchange, changed_headers, url, max_wait: max_wait.map(|wait| wait.as_secs_f64()), port }
    }

    /// Returns the id of the exchange. A request to cancel the exchange contains this id.
    pub(super) fn id(&self) -> u64 {
        self.exchange.id()
    }

    /// Returns a future that resolves to `true` when the caller waits for the next chunk of the
    /// response body, and to `false` if the exchange is cancelled or the caller no longer reads the
    /// response. Returns `None` instead of a future if the exchange has ended.
    pub(super) fn wanted(&self) -> Option<impl Future<Output = bool> + Send + use<>> {
        self.exchange.with(foreign::Exchange::wanted)
    }
}

#[pymethods]
impl Exchange {
    /// Returns the headers that the gate changed or added: `[(name, value), ...]`, as text.
    fn changed_headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in &self.changed_headers {
            let value: String = value.as_bytes().iter().copied().map(char::from).collect();
            list.append((name.as_str(), value))?;
        }
        Ok(list)
    }

    /// Returns True if the exchange was cancelled or has ended.
    #[getter]
    pub(super) fn cancelled(&self) -> bool {
        self.exchange.is_cancelled()
    }

    /// Reports that the transport has read the request body to its end. The time limit for the
    /// response starts at this moment.
    fn body_sent(&self) {
        self.exchange.on_body_sent();
    }

    /// Reports the response head. `headers` is `[(name, value), ...]`, as bytes, and `extensions`
    /// is a dict. Returns True if the head was accepted. Returns False if the exchange was
    /// cancelled, has ended or has a head already, or if the head is malformed, which fails the
    /// exchange.
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

    /// Sends a chunk of the response body to the caller. Returns True if the transport may send the
    /// next chunk now, False if it must wait for `ready` first, and None if the caller no longer
    /// reads the response or the exchange has ended.
    fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        self.exchange.chunk(chunk)
    }

    /// Starts a wait until the transport may send the next chunk. Returns an asyncio future, and
    /// the number that cancels the wait. The result of the future is True if the transport may send
    /// the next chunk, and False if the caller no longer reads the response or the exchange has
    /// ended.
    fn ready(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let room = self.exchange.ready();
        Port::submit(port, async move { Continue(room.await) })
    }

    /// Reports that the response body is complete, which ends the exchange successfully.
    fn end(&self) {
        self.exchange.end();
    }

    /// Ends the exchange with the error that [`transport_error`] returns for `kind`. The error has
    /// `exception` as its cause.
    pub(super) fn fail(&self, kind: &str, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = format!("the client's own transport raised {}", exception.get_type().name()?);
        let cause = PyErr::from_value(exception.clone());
        self.exchange.fail(transport_error(kind, text).with_source(cause));
        Ok(())
    }

    /// Reports that the transport has finished. If the exchange is still open, it fails.
    /// Idempotent. The arguments are ignored.
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

/// The result of a wait until the next chunk may be sent: `true` if it may be sent, `false` if the
/// caller no longer reads the response or the exchange has ended.
struct Continue(bool);

impl Outcome for Continue {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}
