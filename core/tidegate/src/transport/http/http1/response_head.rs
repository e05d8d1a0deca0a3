//! Parses the heads of HTTP/1.1 responses, and decides how their bodies end (RFC 9112, section 6).

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Response, StatusCode, Version};
use httparse::Status;
use hyper::ext::ReasonPhrase;

use super::super::errors;
use super::body_decoder::BodyDecoder;
use crate::error::Error;

/// The maximum length of a head in bytes. Providers send up to 64 KiB.
pub(super) const MAX_HEAD: usize = 256 * 1024;

/// The maximum number of header fields of a response.
const MAX_FIELDS: usize = 256;

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    /// Decodes the body that follows.
    pub(super) body: BodyDecoder,
    /// Whether the connection may be used again after the body.
    pub(super) is_persistent: bool,
}

/// Takes the head of the final response to a request with `method` from the front of `input`.
/// Interim responses (1xx) before it are dropped. Returns `None` if more bytes are needed.
///
/// # Errors
/// `Transport` if the head is malformed, too long, leaves open where the body ends, or has a
/// transfer coding other than `chunked`.
pub(super) fn take(input: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>, Error> {
    loop {
        let Some(response) = parse(input)? else { return Ok(None) };
        if response.status().is_informational() {
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Err(errors::malformed("the server changed the protocol without being asked"));
            }
            continue;
        }
        return frame(response, method).map(Some);
    }
}

/// Takes one head from the front of `input`. Returns `None` if more bytes are needed.
fn parse(input: &mut BytesMut) -> Result<Option<Response<()>>, Error> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, input, &mut fields) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if input.len() < MAX_HEAD => return Ok(None),
        Ok(Status::Partial) => return Err(errors::malformed("the response head is longer than 256 KiB")),
        Err(error) => return Err(errors::malformed(&format!("the response is not HTTP/1.1 ({error})"))),
    };
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default())
        .map_err(|_| errors::malformed("the response has no valid status"))?;
    let reason = parsed.reason.filter(|&reason| Some(reason) != status.canonical_reason());
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    // The values refer to the bytes of the head, whose positions outlive the borrow of `input`.
    let start = input.as_ptr() as usize;
    let position = |value: &[u8]| (value.as_ptr() as usize - start, value.len());
    let fields: Vec<(HeaderName, (usize, usize))> = parsed
        .headers
        .iter()
        .map(|field| {
            let name = HeaderName::from_bytes(field.name.as_bytes());
            name.map(|name| (name, position(field.value)))
        })
        .collect::<Result<_, _>>()
        .map_err(|_| errors::malformed("a header field of the response has no valid name"))?;
    let head = input.split_to(length).freeze();
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    *response.headers_mut() = headers(&head, fields)?;
    if let Some(reason) = reason {
        response.extensions_mut().insert(reason);
    }
    Ok(Some(response))
}

/// Returns header fields whose values are at these positions (start and length) of `head`.
fn headers(head: &Bytes, fields: Vec<(HeaderName, (usize, usize))>) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, (start, length)) in fields {
        let value = HeaderValue::from_maybe_shared(head.slice(start..start + length))
            .map_err(|_| errors::malformed("a header field of the response has no valid value"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Decides how the body of a response ends, and whether the connection persists.
fn frame(mut response: Response<()>, method: &Method) -> Result<ResponseHead, Error> {
    let is_http11 = response.version() == Version::HTTP_11;
    let headers = response.headers_mut();
    let mut is_persistent = match is_http11 {
        true => !has_token(headers, "close"),
        false => has_token(headers, "keep-alive"),
    };
    let length = content_length(headers)?;
    let is_chunked = is_chunked(headers)?;
    if is_chunked && (!is_http11 || length.is_some()) {
        // RFC 9112, section 6.1: perhaps an attempt at response splitting.
        headers.remove(CONTENT_LENGTH);
        is_persistent = false;
    }
    let has_no_body = *method == Method::HEAD
        || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if has_no_body {
        BodyDecoder::empty()
    } else if is_chunked {
        BodyDecoder::chunked()
    } else if let Some(length) = length {
        BodyDecoder::of_length(length)
    } else {
        is_persistent = false;
        BodyDecoder::until_close()
    };
    Ok(ResponseHead { response, body, is_persistent })
}

/// Returns `true` if the header `connection` contains a token.
fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut tokens = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    tokens.any(|one| one.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Returns `true` if the transfer coding is `chunked`. `identity`, which older servers send, counts
/// as no coding.
///
/// # Errors
/// `Transport` if there is another coding, or more than one.
fn is_chunked(headers: &HeaderMap) -> Result<bool, Error> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter().map(|value| value.as_bytes().trim_ascii());
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"identity") => Ok(false),
        _ => Err(errors::malformed("the response has an unsupported transfer-encoding")),
    }
}

/// Returns the value of `content-length`, or `None` if the header is missing. Equal values may be
/// repeated.
///
/// # Errors
/// `Transport` if a value is no number, or values differ.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for number in value.as_bytes().split(|&byte| byte == b',') {
            let number = number.trim_ascii();
            let digits = std::str::from_utf8(number).ok().filter(|_| number.iter().all(u8::is_ascii_digit));
            let parsed = digits.and_then(|digits| digits.parse::<u64>().ok());
            if parsed.is_none() || length.is_some_and(|length| Some(length) != parsed) {
                return Err(errors::malformed("the response has no valid content-length"));
            }
            length = parsed;
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Option<ResponseHead>, Error> {
        take(&mut BytesMut::from(head), &Method::POST)
    }

    /// Returns how the body is framed, and whether the connection persists.
    fn framing(head: &str) -> Result<(Option<u64>, bool, bool), Error> {
        let head = parsed(&format!("{head}\r\n\r\n"))?.expect("a whole head");
        Ok((head.body.remaining(), head.body.ends_with_connection(), head.is_persistent))
    }

    #[test]
    fn body_is_framed_by_the_head() {
        let (chunked, until_close) = ((None, false), (None, true));
        for (head, (length, ends_with_connection), is_persistent) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5", (Some(5), false), true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\nContent-Length: 5", (Some(5), false), true),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive, Close",
                (Some(5), false),
                false,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5", (Some(5), false), false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: Keep-Alive", (Some(5), false), true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked", chunked, true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: Identity\r\ncontent-length: 5", (Some(5), false), true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: identity", until_close, false),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5", chunked, false),
            ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\nconnection: keep-alive", chunked, false),
            ("HTTP/1.1 200 OK", until_close, false),
            ("HTTP/1.1 204 No Content\r\ncontent-length: 5", (Some(0), false), true),
            ("HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked", (Some(0), false), true),
        ] {
            assert_eq!(framing(head).unwrap(), (length, ends_with_connection, is_persistent), "{head}");
        }
        let mut to_head = BytesMut::from("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
        let head = take(&mut to_head, &Method::HEAD).unwrap().expect("a whole head");
        assert_eq!(head.body.remaining(), Some(0), "the answer to HEAD has no body");
    }

    #[test]
    fn unusual_reason_is_kept() {
        let reason = |head: &str| {
            let head = parsed(head).unwrap().expect("a whole head").response;
            head.extensions().get::<ReasonPhrase>().map(|reason| reason.as_bytes().to_vec())
        };
        assert_eq!(reason("HTTP/1.1 999 Odd\r\n\r\n"), Some(b"Odd".to_vec()));
        assert_eq!(reason("HTTP/1.1 200 \r\n\r\n"), Some(Vec::new()));
        assert_eq!(reason("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }

    #[test]
    fn malformed_heads_are_errors() {
        for head in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 6",
            "HTTP/1.1 200 OK\r\ncontent-length: +5",
            "HTTP/1.1 200 OK\r\ncontent-length: ",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ncontent-length: 5",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: ",
            "HTTP/1.1 200 OK\r\ncontent-length : 5",
            "HTTP/1.1 200 OK\r\n folded: 5",
            "HTTP/1.1 200 OK\r\na: b\r\n c",
            "HTTP/1.1 099 No",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket",
            "HTTP/2.0 200 OK",
            "ICY 200 OK",
            "SSH-2.0-OpenSSH_9.6",
        ] {
            assert!(framing(head).is_err(), "{head}");
        }
    }

    #[test]
    fn head_may_be_long_but_not_endless() {
        let of = |length: usize| format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "a".repeat(length));
        assert!(parsed(&of(200 * 1024)).unwrap().is_some());
        assert!(parsed(&of(MAX_HEAD)[..MAX_HEAD]).is_err());
    }

    #[test]
    fn interim_responses_are_dropped_and_the_body_stays() {
        let mut input = BytesMut::from(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
        );
        let head = take(&mut input, &Method::POST).unwrap().expect("a whole head");
        assert_eq!((head.response.status(), head.response.headers().len()), (StatusCode::OK, 0));
        assert_eq!(input, "ok");
    }
}
