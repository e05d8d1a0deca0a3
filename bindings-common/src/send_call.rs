//! Sends calls, and decides which failures the caller gets as HTTP responses instead of errors.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use tidegate::config::Mode;
use tidegate::{Client, Error, ErrorKind, Reason, RequestBody, ResponseBody};

/// Which failed calls return an HTTP response instead of an error. The response has the header
/// `x-should-retry: false`, so that an SDK does not retry the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    /// Calls that the gate rejected, and calls whose deadline passed, return a response. Other
    /// failed calls return an error, and so do calls for which the caller's own client stopped
    /// waiting, because the client has an exception for that.
    RespondToRejections,
    /// All failed calls return a response. Used for SDKs that would retry a call that fails with an
    /// error.
    RespondToAll,
}

impl FailureMode {
    /// Returns [`Self::RespondToAll`] if the gate is in mode `enforce`, an SDK that retries by
    /// itself made the request (as its headers show), and `is_wrapped` is `false`. Otherwise
    /// returns [`Self::RespondToRejections`].
    ///
    /// `mode` is the mode of the gate. `is_wrapped` is `true` if the retries of the SDK are
    /// switched off.
    pub fn for_request(headers: &HeaderMap, mode: Mode, is_wrapped: bool) -> Self {
        if mode == Mode::Enforce && !is_wrapped && is_from_sdk(headers) {
            Self::RespondToAll
        } else {
            Self::RespondToRejections
        }
    }
}

/// Returns `true` if the request has the header `x-stainless-retry-count` or `x-stainless-lang`.
/// The SDKs of OpenAI and Anthropic, and others from the same generator, set these headers and
/// retry by themselves.
fn is_from_sdk(headers: &HeaderMap) -> bool {
    headers.contains_key("x-stainless-retry-count") || headers.contains_key("x-stainless-lang")
}

/// Sends the call, and returns its response as soon as the response head is known. Failures that
/// `failures` selects are returned as responses.
///
/// # Errors
///
/// All other failures of the call.
pub async fn send(
    client: Client,
    request: Request<RequestBody>,
    failures: FailureMode,
) -> Result<Response<ResponseBody>, Error> {
    match client.call(request).await {
        Err(error) if failures == FailureMode::RespondToAll || is_rejection(&error) => Ok(error.response()),
        response => response,
    }
}

/// Returns `true` if the gate rejected the call or its deadline passed, and `false` if the caller's
/// own client stopped waiting.
fn is_rejection(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Deadline)
        && error.reason() != Some(Reason::ClientTimeout)
}

/// Returns `true` if the content type of a response starts with `text/event-stream`.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}
