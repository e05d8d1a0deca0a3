//! From the parts that a fetch has to the request that the core takes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use tidegate::config::Mode;
use tidegate::{Context, Error, ErrorKind, RequestBody, Timeouts, duration};

/// Which failures come back as the response that says them, marked `x-should-retry: false`; the others are rejections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Refusals and deadlines: they have a status, a reason and a time to come back.
    AnswerRefusals,
    /// All: an SDK that nobody told not to retry would repeat whatever rejects.
    AnswerAll,
}

/// The SDK's own timer must not end a wait that the gate could end with an answer: it would ask again. So waiting takes this share of it.
const SHARE: f64 = 0.95;

/// Makes the request; or says why it cannot be sent as it is. `headers` is `name\nvalue\n...`.
pub(crate) fn request(
    method: &str,
    url: &str,
    headers: &[u8],
    body: RequestBody,
    context: Context,
) -> Result<Request<RequestBody>, Error> {
    let uri: Uri = url.parse().map_err(|e| malformed("URL", &e))?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|e| malformed("method", &e))?;
    let mut headers = parse(headers)?;
    // HTTP/2 has no Host header; where it only repeats the URL, the URL says it. A different one is the caller's wish.
    if let (Some(host), Some(authority)) = (headers.get(HOST), uri.authority())
        && host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        headers.remove(HOST);
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let pool = sdk_timeout(request.headers()).map(|timeout| timeout.mul_f64(SHARE));
    request.extensions_mut().insert(Timeouts { read: None, pool });
    request.extensions_mut().insert(context);
    Ok(request)
}

/// Which failures come back as responses. A gate that only looks leaves an SDK its retries.
pub(crate) fn manner(headers: &HeaderMap, mode: Mode, wrapped: bool) -> Manner {
    if mode == Mode::Enforce && !wrapped && from_sdk(headers) {
        Manner::AnswerAll
    } else {
        Manner::AnswerRefusals
    }
}

/// Headers as they cross: `name\nvalue\n...`.
pub(crate) fn parse(flat: &[u8]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(16);
    let mut parts = flat.split(|&byte| byte == b'\n');
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let name = HeaderName::from_bytes(name).map_err(|e| malformed("header name", &e))?;
        // Without the value: it may be a credential.
        let value = HeaderValue::from_bytes(value).map_err(|_| {
            Error::new(ErrorKind::Request, format!("the value of header {name} is malformed"))
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The other way round: one header more.
pub(crate) fn line(flat: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    flat.extend_from_slice(name.as_str().as_bytes());
    flat.push(b'\n');
    flat.extend_from_slice(value.as_bytes());
    flat.push(b'\n');
}

/// A body in memory.
pub(crate) fn whole(bytes: Vec<u8>) -> RequestBody {
    Bytes::from(bytes).into()
}

fn malformed(what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Request, format!("the {what} is malformed: {why}"))
}

/// Whether an SDK that retries by itself made the request (openai, anthropic and their kin say so in their headers).
fn from_sdk(headers: &HeaderMap) -> bool {
    headers.contains_key("x-stainless-retry-count") || headers.contains_key("x-stainless-lang")
}

/// How long an SDK waits for a response's head before it gives up, in seconds.
fn sdk_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get("x-stainless-timeout")?.to_str().ok()?.parse().ok()?;
    duration::from_secs(seconds).filter(|timeout| !timeout.is_zero())
}
