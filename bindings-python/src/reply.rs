//! A response: its head in one crossing, its body pulled.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Version};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::{Client, Error, ErrorKind, RequestBody};

use crate::bridge::{Outcome, Port, Pull, Ring, block_on};
use crate::errors;
use crate::kept::Extensions;
use crate::manner::Manner;
use crate::stream::Stream;

/// What a call came to, as a worker hands it over.
pub(crate) struct Answer {
    status: u16,
    version: Version,
    headers: HeaderMap,
    extensions: Option<Extensions>,
    stream: Stream,
}

/// Whether what is there of the body comes with the head.
#[derive(Clone, Copy)]
pub(crate) enum Ahead {
    /// It does.
    Take,
    /// Not where asking for it would keep the one who brings it from reading it.
    Leave,
}

/// Makes the call and takes what comes with the head.
pub(crate) async fn exchange(
    client: Client,
    request: Request<RequestBody>,
    manner: Manner,
    ahead: Ahead,
) -> Result<Answer, Error> {
    let response = match client.call(request).await {
        Err(error) if manner == Manner::AnswerAll || refusal(&error) => error.response(),
        response => response?,
    };
    let (mut head, body) = response.into_parts();
    let events =
        head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let stream = match ahead {
        Ahead::Take => Stream::begin(body, events).await,
        Ahead::Leave => Stream::unread(body),
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

fn refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Deadline)
}

impl Outcome for Result<Answer, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(answer) => Ok(Py::new(py, Reply::new(answer))?.into_any()),
            Err(error) => errors::instance(py, &error),
        }
    }
}

/// A response. Dropping it, wherever that happens, ends the exchange: the finalizer of streams that nobody closed.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Reply {
    #[pyo3(get)]
    status: u16,
    version: Version,
    headers: HeaderMap,
    extensions: Option<Extensions>,
    stream: Arc<Stream>,
    ring: Mutex<Option<Arc<Ring>>>,
}

impl Reply {
    fn new(answer: Answer) -> Self {
        let Answer { status, version, headers, extensions, stream } = answer;
        Self { status, version, headers, extensions, stream: Arc::new(stream), ring: Mutex::default() }
    }
}

#[pymethods]
impl Reply {
    /// The headers in order, names in lower case: `[(name, value), ...]`, as bytes.
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in &self.headers {
            let pair = [PyBytes::new(py, name.as_str().as_bytes()), PyBytes::new(py, value.as_bytes())];
            list.append(PyTuple::new(py, pair)?)?;
        }
        Ok(list)
    }

    /// As httpx says it in `extensions["http_version"]`.
    #[getter]
    fn http_version(&self) -> &'static [u8] {
        match self.version {
            Version::HTTP_2 => b"HTTP/2",
            Version::HTTP_10 => b"HTTP/1.0",
            _ => b"HTTP/1.1",
        }
    }

    /// The extensions of the response that the client's own transport gave, where it did.
    #[getter]
    fn extensions(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.extensions.as_ref().map(|extensions| extensions.0.clone_ref(py))
    }

    /// The next chunk: bytes, None at the end, or an error; or an asyncio future of one of these.
    fn pull(&self, py: Python<'_>, port: &Bound<'_, Port>) -> PyResult<Py<PyAny>> {
        let ring = {
            let stream: Arc<dyn Pull> = self.stream.clone();
            let mut ring = self.ring.lock();
            let current = port.get().ring(ring.take(), &stream);
            ring.insert(current).clone()
        };
        port.get().pull(py, &ring)
    }

    /// The next chunk, waited for: bytes, None at the end, or an error.
    fn pull_blocking(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let pulled = block_on(py, self.stream.next())?;
        Box::new(pulled).into_python(py)
    }

    /// The next chunk: bytes, None at the end, or an error; False where it is not there yet.
    fn pull_ready(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.stream.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(pulled) => Box::new(pulled).into_python(py),
            Poll::Pending => Ok(false.into_pyobject(py)?.to_owned().into_any().unbind()),
        }
    }

    /// Ends the exchange now and gives the slot back. Idempotent.
    #[pyo3(signature = (port=None))]
    fn close(&self, port: Option<&Bound<'_, Port>>) {
        self.stream.close();
        let ring = self.ring.lock().take();
        if let (Some(port), Some(ring)) = (port, ring) {
            port.get().end(port.py(), &ring, Some(Err(errors::closed())));
        }
    }
}
