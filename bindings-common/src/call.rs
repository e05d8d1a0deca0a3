//! Sends calls, and decides which failures are returned as responses.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use tidegate::config::Mode;
use tidegate::{Client, Error, ErrorKind, RequestBody, ResponseBody};

/// Which failures are returned as an HTTP response with `x-should-retry: false` instead of an
/// error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    /// Rejections and missed deadlines. They have a status, a reason and a time to retry after.
    RespondToRejections,
    /// All failures. An SDK whose retries are on would repeat a call that fails with an error.
    RespondToAll,
}

impl FailureMode {
    /// Returns the mode of a request with these headers. `is_wrapped` says whether the retries of
    /// its SDK were switched off. In the modes `observe` and `off` the SDK keeps its retries.
    pub fn of_request(headers: &HeaderMap, mode: Mode, is_wrapped: bool) -> Self {
        if mode == Mode::Enforce && !is_wrapped && is_from_sdk(headers) {
            Self::RespondToAll
        } else {
            Self::RespondToRejections
        }
    }
}

/// Returns `true` if an SDK with retries of its own made the request. The SDKs of OpenAI and
/// Anthropic, and others from the same generator, set these headers.
fn is_from_sdk(headers: &HeaderMap) -> bool {
    headers.contains_key("x-stainless-retry-count") || headers.contains_key("x-stainless-lang")
}

/// Sends the call, and returns its response once the head is known.
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

/// Returns `true` for rejections and missed deadlines.
fn is_rejection(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Deadline)
}

/// Returns `true` if the response is an event stream.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}
