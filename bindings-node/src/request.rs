//! The request of a call, from the parts that a fetch has.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use tidegate::{Context, Error, RequestBody, Timeouts, duration};
use tidegate_bindings::{append_header, new_request, remove_redundant_host};

/// The share of the SDK's own timeout that a call may wait in the queue. If the SDK's timer ended
/// the wait, the SDK would retry, so the gate must answer before that.
const MAX_WAIT_SHARE: f64 = 0.95;

/// Returns the request. `headers` is `name\nvalue\n...`.
///
/// # Errors
///
/// If a part is malformed.
pub(crate) fn request(
    method: &str,
    url: &str,
    headers: &[u8],
    body: RequestBody,
    context: Context,
) -> Result<Request<RequestBody>, Error> {
    let mut request = new_request(method, url, body)?;
    *request.headers_mut() = parse(headers)?;
    remove_redundant_host(&mut request);
    let pool = sdk_timeout(request.headers()).map(|timeout| timeout.mul_f64(MAX_WAIT_SHARE));
    request.extensions_mut().insert(Timeouts { read: None, pool });
    request.extensions_mut().insert(context);
    Ok(request)
}

/// Returns the headers of a text `name\nvalue\n...`.
///
/// # Errors
///
/// If a name or value is malformed.
pub(crate) fn parse(flat: &[u8]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(16);
    let mut parts = flat.split(|&byte| byte == b'\n');
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        append_header(&mut headers, name, value)?;
    }
    Ok(headers)
}

/// Appends `name\nvalue\n`.
pub(crate) fn append_line(flat: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    flat.extend_from_slice(name.as_str().as_bytes());
    flat.push(b'\n');
    flat.extend_from_slice(value.as_bytes());
    flat.push(b'\n');
}

/// Returns a body in memory.
pub(crate) fn whole(bytes: Vec<u8>) -> RequestBody {
    Bytes::from(bytes).into()
}

/// Returns how long the SDK waits for the head of a response, from its header in seconds.
fn sdk_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get("x-stainless-timeout")?.to_str().ok()?.parse().ok()?;
    duration::from_secs(seconds).filter(|timeout| !timeout.is_zero())
}
