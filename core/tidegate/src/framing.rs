//! Prepares the headers of requests: removes those that concern one connection, and checks that
//! `content-length` is the length of the body.
//!
//! The transport manages its own connections, so the headers of the client's connection are not
//! sent (RFC 9110, section 7.6.1). If the body does not have the length of its `content-length`,
//! the request fails. Otherwise the server would get a truncated body, or wait for the rest.

use http::Request;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

use crate::body::RequestBody;
use crate::error::{Error, ErrorKind};

/// Headers that concern one connection and are always removed. The names that the header
/// `connection` lists are removed too.
const CONNECTION_HEADERS: [HeaderName; 4] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
];

/// Removes the headers that concern only the connection between the client and this process:
/// [`CONNECTION_HEADERS`], those that `connection` lists, and any `te` other than `trailers`.
///
/// # Errors
/// `Request` if the request would change its meaning without such a header: `upgrade`, or a
/// transfer coding other than `chunked`.
pub(crate) fn remove_connection_headers(headers: &mut HeaderMap) -> Result<(), Error> {
    if !headers.keys().any(concerns_connection) {
        return Ok(());
    }
    if headers.contains_key(UPGRADE) {
        return Err(rejection(
            "the connection cannot be upgraded to another protocol: remove the upgrade header",
        ));
    }
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !headers.get_all(TRANSFER_ENCODING).iter().all(is_chunked) {
        return Err(rejection(
            "transfer-encoding must be chunked: remove the header (the transport sets it)",
        ));
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|names| names.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in CONNECTION_HEADERS.iter().chain(&named) {
        headers.remove(name);
    }
    // gRPC needs `te: trailers`, the one value that concerns the call.
    if headers.get_all(TE).iter().any(|te| te != "trailers") {
        headers.remove(TE);
    }
    Ok(())
}

/// Returns `true` if [`remove_connection_headers`] removes or rejects headers of this name. Most
/// requests have none, so their headers are read once.
fn concerns_connection(name: &HeaderName) -> bool {
    [UPGRADE, TE].contains(name) || CONNECTION_HEADERS.contains(name)
}

/// Checks that the body has the length of the header `content-length`, in bytes. A streamed body of
/// another length fails when it is read. Without the header, nothing is checked.
///
/// Removes a `content-length: 0` from a request with a streamed body, because an HTTP/1.1
/// connection would never read the body.
///
/// # Errors
/// `Request` if `content-length` is malformed, repeated, combined with `transfer-encoding`, or
/// differs from the length of a body in memory.
pub(crate) fn declare_length(request: &mut Request<RequestBody>) -> Result<(), Error> {
    let Some(declared) = declared_length(request.headers())? else { return Ok(()) };
    request.body_mut().declare_length(declared)?;
    // An HTTP/1.1 connection never polls a body of length 0, so bytes in it would go unnoticed.
    if declared == 0 && request.body().upload_progress().is_some() {
        request.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(())
}

/// Returns the value of `content-length` in bytes, or `None` if the header is missing.
///
/// # Errors
/// `Request` if the header is malformed, repeated, or combined with `transfer-encoding`.
fn declared_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(rejection("there are several content-length headers: send one"));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err(rejection("content-length and transfer-encoding exclude each other: remove one of them"));
    }
    let digits = value.to_str().ok().filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(length) => Ok(Some(length)),
        None => Err(rejection(
            "content-length must be one number of bytes, in digits: correct or remove the header",
        )),
    }
}

/// Returns the error, of the kind `Request`, for a request whose URL cannot be sent. `why` is the
/// reason. The message omits the URL, which may contain a key.
pub(crate) fn url_rejection(why: &'static str) -> Error {
    rejection(&format!("the URL cannot be sent as it is written: {why}"))
}

fn rejection(why: &str) -> Error {
    Error::new(ErrorKind::Request, why)
}
