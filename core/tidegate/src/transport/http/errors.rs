//! The errors of the built-in transport: maps the errors of sockets, TLS and HTTP/2 to [`Error`].

use std::error::Error as StdError;
use std::io;

use h2::Reason;
use rustls::InvalidMessage;

use crate::error::{Error, ErrorKind};

/// Returns the error for a connection that could not be opened.
pub(super) fn connect(error: &(dyn StdError + 'static)) -> Error {
    let io_error = chain(error).find_map(|error| error.downcast_ref::<io::Error>());
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        return Error::new(ErrorKind::ConnectTimeout, describe("cannot connect", error));
    }
    let described = Error::new(ErrorKind::Connect, describe("cannot connect", error));
    match io_error {
        Some(why) if is_refusal(why) => described.with_connect_refused(),
        Some(why) if is_local(why) => described.with_local_cause(),
        _ => described,
    }
}

/// Returns the error for a TLS handshake with `peer` (the server or the proxy) that failed.
pub(super) fn handshake(error: &io::Error, peer: &str) -> Error {
    let tls_error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    // The first byte of the answer is that of no TLS record. HTTP servers answer the handshake with
    // the text of a 400.
    if let Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) = tls_error {
        let advice = "if it speaks plain HTTP, use http:// in its URL";
        return Error::new(
            ErrorKind::Connect,
            format!("cannot connect: the {peer} does not speak TLS; {advice}"),
        );
    }
    connect(error)
}

/// Returns the error for a connection that took longer than `transport.connect`.
pub(super) fn connect_timeout() -> Error {
    Error::new(ErrorKind::ConnectTimeout, "cannot connect: operation timed out")
}

/// Returns the error for a request that cannot be written.
pub(super) fn request(error: &(dyn StdError + 'static)) -> Error {
    Error::new(ErrorKind::Request, describe("the request cannot be sent", error))
}

/// Returns the error for an exchange that failed: `Truncated` if the peer ended it too early,
/// otherwise `Transport`. If the request's body failed, returns its error unchanged.
pub(super) fn exchange(error: &(dyn StdError + 'static)) -> Error {
    if let Some(own) = chain(error).find_map(|error| error.downcast_ref::<Error>()) {
        return own.clone();
    }
    let kind = if chain(error).any(is_unexpected_end) { ErrorKind::Truncated } else { ErrorKind::Transport };
    Error::new(kind, describe("the exchange failed", error))
}

/// Returns `true` if an exchange over HTTP/2 failed because the server states that it has not
/// processed the request: it refused the stream, or it closes the connection and names an earlier
/// stream as the last that it processes. Such a request may be sent again, whatever its method (RFC
/// 9113, section 8.7).
pub(super) fn is_unprocessed(error: &(dyn StdError + 'static)) -> bool {
    chain(error).filter_map(|error| error.downcast_ref::<h2::Error>()).any(|error| {
        let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        // h2 gives this error only to the streams after the one that the server names.
        let is_shut_down = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        error.is_remote() && (is_refused || is_shut_down)
    })
}

/// Returns the error, of the kind `Transport`, for a response that is not HTTP.
pub(super) fn malformed(why: &str) -> Error {
    Error::new(ErrorKind::Transport, format!("the exchange failed: {why}"))
}

/// Returns the error for a connection that ended before the response began.
pub(super) fn closed() -> Error {
    malformed("the connection was closed before the response")
}

/// Returns the error for a body that ended before its length.
pub(super) fn truncated() -> Error {
    Error::new(
        ErrorKind::Truncated,
        "the exchange failed: the connection was closed before the end of the body",
    )
}

/// Returns an error and its causes, outermost first.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns an error and its causes as text.
fn describe(what: &str, error: &(dyn StdError + 'static)) -> String {
    let mut text = what.to_owned();
    for cause in chain(error) {
        text += &format!(": {cause}");
    }
    text
}

/// Returns `true` if the peer refused or reset the connection attempt.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

/// Returns `true` if the connection failed because this process or machine has no free file
/// descriptors, ports or memory.
fn is_local(error: &io::Error) -> bool {
    // EMFILE (this process), ENFILE (the machine) and Windows' WSAEMFILE. The first two numbers are
    // the same on Linux, macOS and the BSDs.
    const TOO_MANY_FILES: [i32; 3] = [24, 23, 10_024];
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory)
        || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

/// Returns `true` if the error states that the peer ended the body before the announced length.
fn is_unexpected_end(error: &(dyn StdError + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_local_resources_is_a_local_error() {
        let (refused, reset) = (io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset);
        for (error, refusal, ours) in [
            (refused.into(), true, false),
            (reset.into(), true, false),
            (io::Error::from_raw_os_error(24), false, true),
            (io::ErrorKind::AddrNotAvailable.into(), false, true),
            (io::Error::other("failed to lookup address information"), false, false),
            (io::ErrorKind::TimedOut.into(), false, false),
            (io::ErrorKind::HostUnreachable.into(), false, false),
        ] {
            assert_eq!((is_refusal(&error), is_local(&error)), (refusal, ours), "{error}");
        }
    }
}
