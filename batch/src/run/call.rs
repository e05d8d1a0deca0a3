//! One line's call.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, Uri};
use http_body_util::BodyExt;
use tidegate::wire::{Observer, RequestFacts, Usage};
use tidegate::{Client, Context, Error, ErrorKind, Lane, RequestBody, Timeouts};

use super::meter::Unsent;
use crate::fault::Fault;
use crate::output::{Answer, Outcome};

/// How often a call is made whose answer broke off while it was read: the gate does not repeat what a reader has begun to read.
const READINGS: u32 = 3;

/// Where a provider tells its own name for a request.
const IDS: [&str; 3] = ["x-request-id", "request-id", "apim-request-id"];

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) facts: RequestFacts,
    /// The longest silence of the upstream.
    pub(super) patience: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Came {
    pub(super) outcome: Outcome,
    pub(super) usage: Option<Usage>,
    /// Whether something was sent of which nobody knows what it took.
    pub(super) broke_off: bool,
}

impl Ready {
    pub(super) fn new(uri: Uri, credentials: &HeaderMap, body: Bytes, patience: Duration) -> Self {
        let mut headers = credentials.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let facts = RequestFacts::read(&Method::POST, &uri, &headers, Some(&body));
        Self { uri, headers, body, facts, patience }
    }

    fn request(&self, unsent: Option<Unsent>) -> HttpRequest<RequestBody> {
        let mut request = HttpRequest::new(RequestBody::from(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let extensions = request.extensions_mut();
        extensions.insert(Context { lane: Lane::Batch, ..Context::default() });
        extensions.insert(Timeouts { read: Some(self.patience), pool: None });
        if let Some(unsent) = unsent {
            extensions.insert(unsent);
        }
        request
    }

    /// Makes the call.
    pub(super) async fn ask(self, client: Client, unsent: Unsent) -> Came {
        let mut unsent = Some(unsent);
        let mut reading = 1;
        loop {
            match self.once(&client, unsent.take()).await {
                Ok((outcome, usage)) => return Came { outcome, usage, broke_off: false },
                Err((_, true)) if reading < READINGS => reading += 1,
                Err((error, _)) => {
                    // What was never sent has taken nothing.
                    let broke_off = !matches!(
                        error.kind(),
                        ErrorKind::Refused(_)
                            | ErrorKind::Connect
                            | ErrorKind::ConnectTimeout
                            | ErrorKind::Request
                    );
                    return Came { outcome: Outcome::Failed(fault(&error)), usage: None, broke_off };
                }
            }
        }
    }

    /// The answer; or what went wrong, and whether that was while it was read.
    async fn once(
        &self,
        client: &Client,
        unsent: Option<Unsent>,
    ) -> Result<(Outcome, Option<Usage>), (Error, bool)> {
        let response = client.call(self.request(unsent)).await.map_err(|error| (error, false))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| (error, true))?.to_bytes();
        let id = IDS.iter().find_map(|name| head.headers.get(*name)?.to_str().ok()).unwrap_or_default();
        let mut observer = Observer::new(self.facts.dialect, &head.headers, false);
        observer.push(&body, |_| {});
        observer.finish(|_| {});
        let answer = Answer::new(head.status.as_u16(), id, &body);
        Ok((Outcome::Answered(answer), observer.usage()))
    }
}

fn fault(error: &Error) -> Fault {
    let code = error.kind().reason().map_or(error.kind().as_str(), |reason| reason.as_str());
    Fault::new(code, error.to_string())
}
