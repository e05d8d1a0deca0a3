//! From the parts that an httpx transport has to the request that the core takes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidegate::config::Mode;
use tidegate::{Error, ErrorKind, RequestBody, Timeouts, duration};

use crate::context::{Context, resolve};
use crate::kept;
use crate::manner::Manner;
use crate::proxies::ClientProxies;
use crate::upload::Upload;

/// One call's arguments, as Python hands them over.
pub(crate) struct Parts<'a, 'py> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a Bound<'py, PyList>,
    pub(crate) body: &'a Bound<'py, PyAny>,
    pub(crate) read: Option<f64>,
    pub(crate) pool: Option<f64>,
    pub(crate) context: Option<&'a Bound<'py, Context>>,
    /// Its SDK was wrapped, and so told not to retry.
    pub(crate) wrapped: bool,
    /// The asyncio task or thread that makes it.
    pub(crate) task: Option<u64>,
    /// It goes by the client's own transport.
    pub(crate) kept: bool,
    /// The proxy rules of its client, in place of the gate's.
    pub(crate) proxies: Option<&'a ClientProxies>,
}

impl Parts<'_, '_> {
    /// Which failures come back as responses. A gate that only looks leaves an SDK its retries.
    pub(crate) fn manner(&self, request: &Request<RequestBody>, mode: Mode) -> Manner {
        if mode == Mode::Enforce && !self.wrapped && from_sdk(request.headers()) {
            Manner::AnswerAll
        } else {
            Manner::AnswerRefusals
        }
    }

    /// The request; or why it cannot be sent as it is.
    pub(crate) fn build(&self) -> PyResult<Result<Request<RequestBody>, Error>> {
        let body = body(self.body)?;
        let headers = match headers(self.headers)? {
            Ok(headers) => headers,
            Err(error) => return Ok(Err(error)),
        };
        let timeouts = Timeouts { read: seconds("read", self.read)?, pool: seconds("pool", self.pool)? };
        Ok(self.assemble(headers, body, timeouts))
    }

    fn assemble(
        &self,
        mut headers: HeaderMap,
        body: RequestBody,
        timeouts: Timeouts,
    ) -> Result<Request<RequestBody>, Error> {
        let uri: Uri = self.url.parse().map_err(|e| malformed("URL", &e))?;
        let method = Method::from_bytes(self.method.as_bytes()).map_err(|e| malformed("method", &e))?;
        if !self.kept {
            remove_redundant_host(&mut headers, &uri);
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.extensions_mut().insert(timeouts);
        request.extensions_mut().insert(resolve(self.context, self.task));
        if let Some(proxies) = self.proxies {
            request.extensions_mut().insert(proxies.0.clone());
        }
        Ok(request)
    }
}

/// Removes a `host` header that only repeats the URL.
fn remove_redundant_host(headers: &mut HeaderMap, uri: &Uri) {
    // HTTP/2 has no Host header: the URL says it. A different one is the caller's wish.
    if let (Some(host), Some(authority)) = (headers.get(HOST), uri.authority())
        && host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        headers.remove(HOST);
    }
}

fn headers(list: &Bound<'_, PyList>) -> PyResult<Result<HeaderMap, Error>> {
    let mut headers = HeaderMap::with_capacity(list.len());
    for pair in list.iter() {
        let pair = pair.cast::<PyTuple>()?;
        let (name, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
        let name = HeaderName::from_bytes(name.cast::<PyBytes>()?.as_bytes());
        let value = HeaderValue::from_bytes(value.cast::<PyBytes>()?.as_bytes());
        match (name, value) {
            (Ok(name), Ok(value)) => {
                headers.append(name, value);
            }
            (Err(e), _) => return Ok(Err(malformed("header name", &e))),
            // Without the value: it may be a credential.
            (Ok(name), Err(_)) => {
                return Ok(Err(Error::new(
                    ErrorKind::Request,
                    format!("the value of header {name} is malformed"),
                )));
            }
        }
    }
    Ok(Ok(headers))
}

fn body(body: &Bound<'_, PyAny>) -> PyResult<RequestBody> {
    if body.is_none() {
        return Ok(kept::upload());
    }
    if let Ok(upload) = body.cast::<Upload>() {
        return upload.get().body();
    }
    let bytes = body.cast::<PyBytes>()?.as_bytes();
    Ok(Bytes::copy_from_slice(bytes).into())
}

fn malformed(what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Request, format!("the {what} is malformed: {why}"))
}

/// Converts one of httpx's timeouts. `None` and infinity mean no limit; a negative one counts as 0.
fn seconds(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        Some(seconds) if seconds.is_nan() => Err(PyValueError::new_err(format!(
            "timeout: {name} is not a number; give seconds, or None for no limit"
        ))),
        Some(seconds) => Ok(duration::from_secs(seconds.max(0.0))),
        None => Ok(None),
    }
}

/// Whether an SDK that retries by itself made the request (openai, anthropic and their kin say so in their headers).
fn from_sdk(headers: &HeaderMap) -> bool {
    headers.contains_key("x-stainless-retry-count") || headers.contains_key("x-stainless-lang")
}
