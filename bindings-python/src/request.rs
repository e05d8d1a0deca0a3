//! The request of a call, from the parts that an httpx transport has.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::config::Mode;
use tidegate::{Error, RequestBody, Timeouts, duration};
use tidegate_bindings::{FailureMode, append_header, new_request, remove_redundant_host};

use crate::context::{Context, resolve};
use crate::custom_transport;
use crate::proxies::ClientProxies;
use crate::upload::Upload;

/// The parts of one request, as Python passes them.
pub(crate) struct Parts<'py> {
    method: String,
    url: String,
    /// `[(name, value), ...]`, as bytes.
    headers: Bound<'py, PyList>,
    /// Bytes, an [`Upload`], or None if the client's own transport reads the body.
    body: Bound<'py, PyAny>,
    /// The read timeout, in seconds.
    read: Option<f64>,
    /// The pool timeout, in seconds.
    pool: Option<f64>,
    context: Option<Bound<'py, Context>>,
    /// Whether the retries of the SDK above are off.
    is_wrapped: bool,
    /// The number of the asyncio task or thread.
    task: Option<u64>,
    /// The proxy rules of the client, instead of the gate's.
    proxies: Option<Bound<'py, ClientProxies>>,
}

impl<'py> Parts<'py> {
    /// Reads the positional arguments of a call.
    pub(crate) fn read(arguments: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (method, url, headers, body, read, pool, context, is_wrapped, task, proxies) =
            arguments.extract()?;
        Ok(Self { method, url, headers, body, read, pool, context, is_wrapped, task, proxies })
    }

    /// Returns which failures of the request come back as responses.
    pub(crate) fn failure_mode(&self, request: &Request<RequestBody>, mode: Mode) -> FailureMode {
        FailureMode::of_request(request.headers(), mode, self.is_wrapped)
    }

    /// Returns the request, or the error of a malformed part. `is_custom` says that the client's
    /// own transport sends it, by its own rules.
    pub(crate) fn build(&self, is_custom: bool) -> PyResult<Result<Request<RequestBody>, Error>> {
        let body = body(&self.body)?;
        let headers = match headers(&self.headers)? {
            Ok(headers) => headers,
            Err(error) => return Ok(Err(error)),
        };
        let timeouts = Timeouts { read: timeout("read", self.read)?, pool: timeout("pool", self.pool)? };
        let mut request = match new_request(&self.method, &self.url, body) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error)),
        };
        *request.headers_mut() = headers;
        if !is_custom {
            remove_redundant_host(&mut request);
        }
        request.extensions_mut().insert(timeouts);
        request.extensions_mut().insert(resolve(self.context.as_ref(), self.task));
        if let Some(proxies) = &self.proxies {
            request.extensions_mut().insert(proxies.get().0.clone());
        }
        Ok(Ok(request))
    }
}

/// Converts a list of `(name, value)` pairs. The inner error is that of a malformed header.
fn headers(list: &Bound<'_, PyList>) -> PyResult<Result<HeaderMap, Error>> {
    let mut headers = HeaderMap::with_capacity(list.len());
    for pair in list.iter() {
        let pair = pair.cast::<PyTuple>()?;
        let (name, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
        let (name, value) = (name.cast::<PyBytes>()?, value.cast::<PyBytes>()?);
        if let Err(error) = append_header(&mut headers, name.as_bytes(), value.as_bytes()) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(headers))
}

/// Converts the body argument.
fn body(body: &Bound<'_, PyAny>) -> PyResult<RequestBody> {
    if body.is_none() {
        return Ok(custom_transport::upload());
    }
    if let Ok(upload) = body.cast::<Upload>() {
        return upload.get().body();
    }
    let bytes = body.cast::<PyBytes>()?.as_bytes();
    Ok(Bytes::copy_from_slice(bytes).into())
}

/// Returns a timeout of httpx. `None` and infinity mean no limit. A negative number counts as 0.
fn timeout(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        Some(seconds) if seconds.is_nan() => Err(PyValueError::new_err(format!(
            "timeout: {name} is not a number; give seconds, or None for no limit"
        ))),
        Some(seconds) => Ok(duration::from_secs(seconds.max(0.0))),
        None => Ok(None),
    }
}
