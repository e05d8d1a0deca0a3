//! One line's call.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, Uri};
use http_body_util::BodyExt;
use tidegate::wire::{Observer, RequestFacts, Usage};
use tidegate::{Client, Context, Error, ErrorKind, Lane, RequestBody, Timeouts};

use super::queue_meter::QueuedCall;
use crate::output::{LineError, LineOutcome, ProviderResponse};

/// How often a call is made whose answer broke off while it was read: the gate does not repeat what a reader has begun to read.
const MAX_READ_ATTEMPTS: u32 = 3;

/// Where a provider tells its own name for a request.
const REQUEST_ID_HEADERS: [&str; 3] = ["x-request-id", "request-id", "apim-request-id"];

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct PreparedRequest {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) facts: RequestFacts,
    /// The longest silence of the upstream.
    pub(super) read_timeout: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) outcome: LineOutcome,
    pub(super) usage: Option<Usage>,
    /// Whether something was sent of which nobody knows what it took.
    pub(super) broke_off: bool,
}

impl PreparedRequest {
    pub(super) fn new(uri: Uri, credentials: &HeaderMap, body: Bytes, read_timeout: Duration) -> Self {
        let mut headers = credentials.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let facts = RequestFacts::read(&Method::POST, &uri, &headers, Some(&body));
        Self { uri, headers, body, facts, read_timeout }
    }

    fn request(&self, unsent: Option<QueuedCall>) -> HttpRequest<RequestBody> {
        let mut request = HttpRequest::new(RequestBody::from(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let extensions = request.extensions_mut();
        extensions.insert(Context { lane: Lane::Batch, ..Context::default() });
        extensions.insert(Timeouts { read: Some(self.read_timeout), pool: None });
        if let Some(unsent) = unsent {
            extensions.insert(unsent);
        }
        request
    }

    /// Makes the call.
    pub(super) async fn ask(self, client: Client, unsent: QueuedCall) -> CallResult {
        let mut unsent = Some(unsent);
        let mut reading = 1;
        loop {
            match self.once(&client, unsent.take()).await {
                Ok((outcome, usage)) => return CallResult { outcome, usage, broke_off: false },
                Err((_, true)) if reading < MAX_READ_ATTEMPTS => reading += 1,
                Err((error, _)) => {
                    // What was never sent has taken nothing.
                    let broke_off = !matches!(
                        error.kind(),
                        ErrorKind::Refused(_)
                            | ErrorKind::Connect
                            | ErrorKind::ConnectTimeout
                            | ErrorKind::Request
                    );
                    return CallResult {
                        outcome: LineOutcome::Failed(fault(&error)),
                        usage: None,
                        broke_off,
                    };
                }
            }
        }
    }

    /// The answer; or what went wrong, and whether that was while it was read.
    async fn once(
        &self,
        client: &Client,
        unsent: Option<QueuedCall>,
    ) -> Result<(LineOutcome, Option<Usage>), (Error, bool)> {
        let response = client.call(self.request(unsent)).await.map_err(|error| (error, false))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| (error, true))?.to_bytes();
        let id = REQUEST_ID_HEADERS
            .iter()
            .find_map(|name| head.headers.get(*name)?.to_str().ok())
            .unwrap_or_default();
        let mut observer = Observer::new(self.facts.dialect, &head.headers, false);
        observer.push(&body, |_| {});
        observer.finish(|_| {});
        let answer = ProviderResponse::new(head.status.as_u16(), id, &body);
        Ok((LineOutcome::Answered(answer), observer.usage()))
    }
}

fn fault(error: &Error) -> LineError {
    let code = error.kind().reason().map_or(error.kind().as_str(), |reason| reason.as_str());
    LineError::new(code, error.to_string())
}
