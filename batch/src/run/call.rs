//! The call of one line.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, Uri};
use http_body_util::BodyExt;
use tidegate::protocol::{Observer, RequestFacts, Usage};
use tidegate::{Client, Context, Error, ErrorKind, Lane, RequestBody, Timeouts};

use super::queue_meter::QueuedCall;
use crate::line_error::LineError;
use crate::output::{LineOutcome, ProviderResponse};

/// Maximum number of times a call is made if its response breaks off. The gate does not retry a
/// response that is being read.
const MAX_READ_ATTEMPTS: u32 = 3;

/// Response headers that may contain the provider's identifier of the request.
const REQUEST_ID_HEADERS: [&str; 3] = ["x-request-id", "request-id", "apim-request-id"];

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct PreparedRequest {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) facts: RequestFacts,
    /// Maximum silence of the server.
    pub(super) read_timeout: Duration,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) outcome: LineOutcome,
    pub(super) usage: Option<Usage>,
    /// Whether a request was sent whose usage is unknown.
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
                    // A request that was never sent has used nothing.
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

    /// Makes one call. The error contains whether it occurred while the body was read.
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
