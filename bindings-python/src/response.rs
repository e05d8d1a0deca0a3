//! Responses on their way to Python. The head is passed once. Python requests the body chunk by
//! chunk.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, Request, Version};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::{Client, Error, RequestBody};
use tidegate_bindings::{
    BodyStream, Chunk, FailureMode, StreamReader, is_event_stream, response_closed, send,
};

use crate::bridge::{Outcome, PendingRead, Port, Queue, block_on};
use crate::errors;

/// The extensions (a Python dict) of the response that the client's own transport returned.
#[derive(Clone)]
pub(crate) struct Extensions(pub(crate) Arc<Py<PyAny>>);

/// A response that has been received, before it is converted into a Python object.
pub(crate) struct Answer {
    status: u16,
    version: Version,
    headers: HeaderMap,
    extensions: Option<Extensions>,
    stream: BodyStream,
}

/// Whether the part of the body that has already arrived is read before the response is returned.
#[derive(Clone, Copy)]
pub(crate) enum ReadAhead {
    Yes,
    /// Nothing is read. Used if the calling thread itself delivers the body, because it cannot
    /// deliver and read at the same time.
    No,
}

/// Makes the call, and returns its response as soon as the response head is known.
pub(crate) async fn run_call(
    client: Client,
    request: Request<RequestBody>,
    failures: FailureMode,
    read_ahead: ReadAhead,
) -> Result<Answer, Error> {
    let (mut head, body) = send(client, request, failures).await?.into_parts();
    let stream = match read_ahead {
        ReadAhead::Yes => BodyStream::read_ahead(body, is_event_stream(&head.headers)).await,
        ReadAhead::No => BodyStream::unread(body),
    };
    let extensions = head.extensions.remove::<Extensions>();
    Ok(Answer {
        status: head.status.as_u16(),
        version: head.version,
        headers: head.headers,
        extensions,
        stream,
    })
}

impl Outcome for Result<Answer, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(answer) => Ok(Py::new(py, Reply::new(answer))?.into_any()),
            Err(error) => errors::to_exception(py, &error),
        }
    }
}

impl Outcome for Chunk {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Some(Ok(chunk)) => Ok(PyBytes::new(py, &chunk).into_any().unbind()),
            Some(Err(error)) => errors::to_exception(py, &error),
            None => Ok(py.None()),
        }
    }
}

/// A response. Dropping it ends the exchange. The garbage collector drops responses that the
/// program has not closed.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Reply {
    #[pyo3(get)]
    status: u16,
    version: Version,
    headers: HeaderMap,
    extensions: Option<Extensions>,
    stream: Arc<BodyStream>,
    reader: Mutex<Option<Arc<StreamReader<Queue>>>>,
    /// Present while the thread that reads the body delivers the next chunk itself.
    delivery: Mutex<Option<PendingRead>>,
}

impl Reply {
    fn new(answer: Answer) -> Self {
        let Answer { status, version, headers, extensions, stream } = answer;
        let (reader, delivery) = (Mutex::default(), Mutex::default());
        Self { status, version, headers, extensions, stream: Arc::new(stream), reader, delivery }
    }

    /// Returns the body of the response.
    pub(crate) fn stream(&self) -> &BodyStream {
        &self.stream
    }
}

#[pymethods]
impl Reply {
    /// Returns the headers in order: `[(name, value), ...]`, as bytes, with names in lower case.
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in &self.headers {
            let pair = [PyBytes::new(py, name.as_str().as_bytes()), PyBytes::new(py, value.as_bytes())];
            list.append(PyTuple::new(py, pair)?)?;
        }
        Ok(list)
    }

    /// The HTTP version as bytes, in the form of httpx's `extensions["http_version"]`.
    #[getter]
    fn http_version(&self) -> &'static [u8] {
        match self.version {
            Version::HTTP_2 => b"HTTP/2",
            Version::HTTP_10 => b"HTTP/1.0",
            _ => b"HTTP/1.1",
        }
    }

    /// The extensions of the response if the client's own transport made the exchange, otherwise
    /// None.
    #[getter]
    fn extensions(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.extensions.as_ref().map(|extensions| extensions.0.clone_ref(py))
    }

    /// Returns the next chunk as bytes, None at the end of the body, or an error as an exception
    /// object. If none of these has arrived, returns an asyncio future of the next one.
    fn pull(&self, py: Python<'_>, port: &Bound<'_, Port>) -> PyResult<Py<PyAny>> {
        let reader = {
            let mut reader = self.reader.lock();
            let current = port.get().reader(reader.take(), &self.stream);
            reader.insert(current).clone()
        };
        port.get().read(py, &reader)
    }

    /// Blocks until the next chunk has arrived. Returns it as bytes, or None at the end of the
    /// body, or an error as an exception object.
    fn pull_blocking(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        *self.delivery.lock() = None;
        let _pending = PendingRead::begin();
        let chunk = block_on(py, self.stream.next())?;
        Box::new(chunk).into_python(py)
    }

    /// Returns the next chunk as bytes, None at the end of the body, or an error as an exception
    /// object. Returns False if none of these has arrived. The caller must then deliver the next
    /// chunk, and call this method again.
    fn pull_ready(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let polled = self.stream.poll(&mut Context::from_waker(Waker::noop()));
        *self.delivery.lock() = polled.is_pending().then(PendingRead::begin);
        match polled {
            Poll::Ready(chunk) => Box::new(chunk).into_python(py),
            Poll::Pending => Ok(false.into_pyobject(py)?.to_owned().into_any().unbind()),
        }
    }

    /// Returns the unread rest of the body as bytes if it has arrived completely, and marks it as
    /// read. Otherwise returns None, and reads nothing.
    fn take_whole<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.stream.take_whole().map(|body| PyBytes::new(py, &body))
    }

    /// Ends the exchange now, and releases its slot. If `port` is given, also ends a pending read
    /// on that event loop. Idempotent.
    #[pyo3(signature = (port=None))]
    fn close(&self, port: Option<&Bound<'_, Port>>) {
        self.stream.close();
        *self.delivery.lock() = None;
        let reader = self.reader.lock().take();
        if let (Some(port), Some(reader)) = (port, reader) {
            port.get().end_read(port.py(), &reader, Some(Err(response_closed())));
        }
    }
}
