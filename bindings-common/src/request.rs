//! Builds the request of a call from the parts that a client library passes.

use std::fmt::Display;

use http::header::{HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use tidegate::{Error, ErrorKind, RequestBody};

/// Creates a request without headers.
///
/// # Errors
///
/// If the URL or the method is malformed.
pub fn new_request(method: &str, url: &str, body: RequestBody) -> Result<Request<RequestBody>, Error> {
    let uri: Uri = url.parse().map_err(|error| malformed("URL", &error))?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|error| malformed("method", &error))?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    Ok(request)
}

/// Adds a header. Other headers with the same name are kept.
///
/// # Errors
///
/// If the name or the value is malformed. The message does not contain the value, which may be a
/// credential.
pub fn append_header(headers: &mut HeaderMap, name: &[u8], value: &[u8]) -> Result<(), Error> {
    let name = HeaderName::from_bytes(name).map_err(|error| malformed("header name", &error))?;
    let value = HeaderValue::from_bytes(value)
        .map_err(|_| Error::new(ErrorKind::Request, format!("the value of header {name} is malformed")))?;
    headers.append(name, value);
    Ok(())
}

/// Removes the `host` header if it equals the host and port of the URL, because an HTTP/2 request
/// does not have this header. A different `host` header is kept.
pub fn remove_redundant_host(request: &mut Request<RequestBody>) {
    if let (Some(host), Some(authority)) = (request.headers().get(HOST), request.uri().authority())
        && host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        request.headers_mut().remove(HOST);
    }
}

/// Returns the error for a request that has a malformed part. `part` names it, for example `URL`.
pub(crate) fn malformed(part: &str, error: &dyn Display) -> Error {
    Error::new(ErrorKind::Request, format!("the {part} is malformed: {error}"))
}
