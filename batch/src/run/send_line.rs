//! Sends the request of one line, and reads the response.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, Uri};
use http_body_util::BodyExt;
use tidegate::protocol::{Observer, RequestFacts, Usage};
use tidegate::{Client, Context, Error, ErrorKind, Lane, RequestBody, Timeouts};

use super::waiting_calls::QueuedCall;
use crate::line_error::LineError;
use crate::output::{LineOutcome, ProviderResponse};

/// Maximum number of times a request is sent if its response breaks off. The gate retries a call
/// only until its response begins.
const MAX_READ_ATTEMPTS: u32 = 3;

/// Response headers that may contain the provider's identifier of the request, in order of
/// preference.
const REQUEST_ID_HEADERS: [&str; 3] = ["x-request-id", "request-id", "apim-request-id"];

/// A request with its headers, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct PreparedRequest {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) facts: RequestFacts,
    /// Time without data from the provider after which the call fails.
    pub(super) read_timeout: Duration,
}

/// The outcome of a call, and the tokens that it used.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) outcome: LineOutcome,
    pub(super) usage: Option<Usage>,
    /// `true` if the call may have used tokens that no response reported.
    pub(super) usage_unknown: bool,
}

impl PreparedRequest {
    pub(super) fn new(uri: Uri, credentials: &HeaderMap, body: Bytes, read_timeout: Duration) -> Self {
        let mut headers = credentials.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let facts = RequestFacts::read(&Method::POST, &uri, &headers, Some(&body));
        Self { uri, headers, body, facts, read_timeout }
    }

    fn request(&self, queued: Option<QueuedCall>) -> HttpRequest<RequestBody> {
        let mut request = HttpRequest::new(RequestBody::from(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let extensions = request.extensions_mut();
        extensions.insert(Context { lane: Lane::Batch, ..Context::default() });
        extensions.insert(Timeouts { read: Some(self.read_timeout), pool: None });
        if let Some(queued) = queued {
            extensions.insert(queued);
        }
        request
    }

    /// Sends the request and reads the whole response. Sends it again if the response breaks off,
    /// up to [`MAX_READ_ATTEMPTS`] times in total. `queued` counts the call as waiting until the
    /// first request is sent.
    pub(super) async fn send_until_read(self, client: Client, queued: QueuedCall) -> CallResult {
        let mut queued = Some(queued);
        let mut attempts = 1;
        loop {
            match self.attempt(&client, queued.take()).await {
                Ok((outcome, usage)) => return CallResult { outcome, usage, usage_unknown: false },
                Err((_, true)) if attempts < MAX_READ_ATTEMPTS => attempts += 1,
                Err((error, _)) => {
                    // A request that was never sent has used nothing.
                    let usage_unknown = !matches!(
                        error.kind(),
                        ErrorKind::Refused(_)
                            | ErrorKind::Connect
                            | ErrorKind::ConnectTimeout
                            | ErrorKind::Request
                    );
                    return CallResult {
                        outcome: LineOutcome::Failed(line_error(&error)),
                        usage: None,
                        usage_unknown,
                    };
                }
            }
        }
    }

    /// Sends the request once and reads the whole response. The flag in the error is `true` if the
    /// error occurred after the response began.
    async fn attempt(
        &self,
        client: &Client,
        queued: Option<QueuedCall>,
    ) -> Result<(LineOutcome, Option<Usage>), (Error, bool)> {
        let response = client.call(self.request(queued)).await.map_err(|error| (error, false))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| (error, true))?.to_bytes();
        let id = REQUEST_ID_HEADERS
            .iter()
            .find_map(|name| head.headers.get(*name)?.to_str().ok())
            .unwrap_or_default();
        let mut observer = Observer::new(self.facts.dialect, &head.headers, false);
        observer.push(&body, |_| {});
        observer.finish(|_| {});
        let response_record = ProviderResponse::new(head.status.as_u16(), id, &body);
        Ok((LineOutcome::Answered(response_record), observer.usage()))
    }
}

fn line_error(error: &Error) -> LineError {
    let code = error.kind().reason().map_or(error.kind().as_str(), |reason| reason.as_str());
    LineError::new(code, error.to_string())
}
