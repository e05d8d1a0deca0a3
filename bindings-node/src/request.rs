//! Builds the request of a call from the parts that JavaScript's fetch has.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use tidegate::{Context, Error, RequestBody, Timeouts, duration};
use tidegate_bindings::{append_header, new_request, remove_redundant_host};

/// The share of the calling SDK's own timeout that a call may wait in the queue. It is below 1, so
/// that the gate rejects the call before the timer of the SDK fires and the SDK retries.
const MAX_WAIT_SHARE: f64 = 0.95;

/// Builds a request. `headers` has two lines for each header: `name\nvalue\n`. If they contain the
/// timeout of the calling SDK (`x-stainless-timeout`), the call waits for a slot for at most 95% of
/// that timeout.
///
/// # Errors
///
/// If the method, the URL or a header is malformed.
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

/// Returns the headers in `flat`, which has two lines for each header: `name\nvalue\n`.
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

/// Appends a header to `flat` as two lines: `name\nvalue\n`.
pub(crate) fn append_line(flat: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    flat.extend_from_slice(name.as_str().as_bytes());
    flat.push(b'\n');
    flat.extend_from_slice(value.as_bytes());
    flat.push(b'\n');
}

/// Returns a request body with these bytes.
pub(crate) fn body_in_memory(bytes: Vec<u8>) -> RequestBody {
    Bytes::from(bytes).into()
}

/// Returns how long the calling SDK waits for the response head, from its header
/// `x-stainless-timeout` in seconds. `None` if the header is missing, invalid or 0.
fn sdk_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get("x-stainless-timeout")?.to_str().ok()?.parse().ok()?;
    duration::from_secs(seconds).filter(|timeout| !timeout.is_zero())
}
