//! Builds the request of a call from the parts that an httpx transport has.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::config::Mode;
use tidegate::{Error, RequestBody, Timeouts, duration};
use tidegate_bindings::{FailureMode, append_header, new_request, remove_redundant_host};

use crate::body_upload::Upload;
use crate::context::{Context, resolve};
use crate::custom_transport;
use crate::proxies::ClientProxies;
use crate::seconds_argument::to_seconds;

/// The parts of one request, as Python passes them.
pub(crate) struct RequestParts<'py> {
    method: String,
    url: String,
    /// The headers: `[(name, value), ...]`, as bytes.
    headers: Bound<'py, PyList>,
    /// The body: bytes, an [`Upload`], or None if the client's own transport reads the body itself.
    body: Bound<'py, PyAny>,
    /// The read timeout of the client in seconds. `None` sets no limit.
    read: Option<Bound<'py, PyAny>>,
    /// The maximum wait for a slot in seconds. `None` sets no limit.
    pool: Option<Bound<'py, PyAny>>,
    context: Option<Bound<'py, Context>>,
    /// `true` if the retries of the calling SDK are switched off.
    is_wrapped: bool,
    /// The maximum number of attempts that the calling SDK was configured with. `None` if the
    /// configuration of the gate applies.
    max_attempts: Option<u32>,
    /// The number of the caller's asyncio task or thread; `None` if a callback of an event loop
    /// makes the call.
    task: Option<u64>,
    /// The proxy rules of the client. `None` uses those of the gate.
    proxies: Option<Bound<'py, ClientProxies>>,
}

impl<'py> RequestParts<'py> {
    /// Extracts the parts from the positional arguments of a call.
    pub(crate) fn read(arguments: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (method, url, headers, body, read, pool, context, is_wrapped, max_attempts, task, proxies) =
            arguments.extract()?;
        Ok(Self { method, url, headers, body, read, pool, context, is_wrapped, max_attempts, task, proxies })
    }

    /// Returns which failures of this request end with a response instead of an error.
    pub(crate) fn failure_mode(&self, request: &Request<RequestBody>, mode: Mode) -> FailureMode {
        FailureMode::for_request(request.headers(), mode, self.is_wrapped)
    }

    /// Builds the request. `is_custom` is `true` if the client's own transport sends it. The `host`
    /// header is then left unchanged, because that transport applies its own rules to it.
    ///
    /// # Errors
    ///
    /// The outer error is that of an argument with a wrong type or value; the inner error is that
    /// of a malformed URL, method or header.
    pub(crate) fn build(&self, is_custom: bool) -> PyResult<Result<Request<RequestBody>, Error>> {
        let body = body(&self.body)?;
        let headers = match headers(&self.headers)? {
            Ok(headers) => headers,
            Err(error) => return Ok(Err(error)),
        };
        let (read, pool) = (self.read.as_ref(), self.pool.as_ref());
        let timeouts =
            Timeouts { read: timeout("timeout: read", read)?, pool: timeout("timeout: pool", pool)? };
        let mut request = match new_request(&self.method, &self.url, body) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error)),
        };
        *request.headers_mut() = headers;
        if !is_custom {
            remove_redundant_host(&mut request);
        }
        request.extensions_mut().insert(timeouts);
        let context = resolve(self.context.as_ref(), self.task);
        request.extensions_mut().insert(tidegate::Context { max_attempts: self.max_attempts, ..context });
        if let Some(proxies) = &self.proxies {
            request.extensions_mut().insert(proxies.get().0.clone());
        }
        Ok(Ok(request))
    }
}

/// Converts a list of `(name, value)` pairs into headers.
///
/// # Errors
///
/// The outer error is that of a value with a wrong type; the inner error is that of a malformed
/// header.
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

/// Converts the body argument: bytes, an [`Upload`], or None for a body that the client's own
/// transport reads.
fn body(body: &Bound<'_, PyAny>) -> PyResult<RequestBody> {
    if body.is_none() {
        return Ok(custom_transport::unread_upload());
    }
    if let Ok(upload) = body.cast::<Upload>() {
        return upload.get().body();
    }
    let bytes = body.cast::<PyBytes>()?.as_bytes();
    Ok(Bytes::copy_from_slice(bytes).into())
}

/// Converts a timeout of httpx, in seconds, into a duration. Returns `None`, which means no limit,
/// for `None` and infinity. A negative number counts as 0. `name` is the name of the timeout in the
/// error message.
///
/// # Errors
///
/// `TypeError` if the timeout is not a number, and `ValueError` if it is NaN.
fn timeout(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    let seconds = to_seconds(name, value)?;
    if seconds.is_nan() {
        return Err(PyValueError::new_err(format!(
            "{name} is not a number; give seconds, or None for no limit"
        )));
    }
    Ok(duration::from_secs(seconds.max(0.0)))
}
