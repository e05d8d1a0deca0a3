//! Sends the request of one line, and reads the response.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, Uri};
use http_body_util::{BodyExt, Collected};
use serde::Deserialize;
use tidegate::protocol::api_key::ANTHROPIC_VERSION;
use tidegate::protocol::{
    Class, Dialect, Observer, RequestFacts, Signal, Usage, Verdict, choice_error, classify, classify_event,
};
use tidegate::{Client, Context, Error, ErrorKind, Lane, RequestBody, ResponseBody, Timeouts};

use super::outage::{MAX_ANNOUNCED_WAIT, is_connect_failure};
use super::spend::CeilingReached;
use super::streamed_answer::{StreamedAnswer, streamed_request};
use super::waiting_calls::{QueuedCall, SHOULD_RETRY};
use crate::line_error::LineError;
use crate::output::{LineOutcome, ProviderResponse};

/// Statuses with which servers reject a request that they would accept without streaming.
const STREAM_REJECTED: [u16; 4] = [400, 405, 422, 501];

/// Number of failures of streams after which a run requests no more streams; see [`Streaming`].
const MAX_STREAM_FAILURES: u32 = 3;

/// Response headers that may contain the provider's identifier of the request, in order of
/// preference.
const REQUEST_ID_HEADERS: [&str; 3] = ["x-request-id", "request-id", "apim-request-id"];

/// A request with its headers, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct PreparedRequest {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The body that requests the same answer as a stream. `None` if the answer is not streamed.
    pub(super) streamed_body: Option<Bytes>,
    pub(super) facts: RequestFacts,
    /// Time without data from the provider after which the call fails.
    pub(super) read_timeout: Duration,
    /// Whether the run streams answers.
    pub(super) streaming: Arc<Streaming>,
    /// The number of streams that the run had joined when the stream of this request failed. `None`
    /// if it has not failed.
    failed_stream: Option<u32>,
}

/// Whether a run streams answers. Shared by the requests of the run.
///
/// A stream fails if it cannot be joined to an answer, but the same request is then answered
/// without streaming. The run stops streaming after [`MAX_STREAM_FAILURES`] failures without a
/// joined stream in between. A failure does not count if a stream was joined between it and the
/// answer without streaming, because a restart of the server breaks all open streams at once.
#[derive(Debug)]
pub(super) struct Streaming {
    joined: AtomicU32,
    failures: AtomicU32,
}

impl Streaming {
    pub(super) fn new(is_on: bool) -> Self {
        let failures = if is_on { 0 } else { MAX_STREAM_FAILURES };
        Self { joined: AtomicU32::new(0), failures: AtomicU32::new(failures) }
    }

    fn is_on(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < MAX_STREAM_FAILURES
    }

    fn switch_off(&self) {
        self.failures.store(MAX_STREAM_FAILURES, Ordering::Relaxed);
    }

    /// Returns the number of streams that were joined.
    fn joined(&self) -> u32 {
        self.joined.load(Ordering::Relaxed)
    }

    fn on_joined(&self) {
        self.joined.fetch_add(1, Ordering::Relaxed);
        if self.is_on() {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records the answer without streaming to a request whose stream failed when `joined` streams
    /// were joined.
    fn on_failure(&self, joined: u32) {
        if self.joined() == joined && self.is_on() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The outcome of a call, and the tokens that it used.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) outcome: LineOutcome,
    /// The tokens that the last request of the call used. `None` if no response reported them.
    pub(super) usage: Option<Usage>,
    /// `true` if the call ended because another request could exceed a ceiling.
    pub(super) is_above_ceiling: bool,
    /// `true` if the response began, but broke off, was not a JSON object or was an error that may
    /// pass. The gate retries a call only until its response begins.
    pub(super) is_retryable: bool,
    /// Why the request must be sent again later. `None` if it need not be.
    pub(super) waits_for: Option<WaitReason>,
}

/// Why a request that the provider has not processed is sent again later, although the gate has
/// made all its attempts. The gate itself makes calls wait only after several calls have failed,
/// and the last lines of a run may be fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The request exceeded the rate that the provider allows.
    RateLimit,
    /// No connection was established, or the server is overloaded.
    ServerDown,
}

impl WaitReason {
    /// Returns the reason if the failure `verdict` says that the provider has not processed the
    /// request, and will process it later. A wait of more than [`MAX_ANNOUNCED_WAIT`] is none.
    fn from_verdict(verdict: &Verdict) -> Option<Self> {
        let is_near = verdict.delay.is_none_or(|delay| delay <= MAX_ANNOUNCED_WAIT);
        match verdict.class {
            _ if !verdict.retryable || !is_near => None,
            Class::RateLimited => Some(Self::RateLimit),
            Class::Overloaded => Some(Self::ServerDown),
            _ => None,
        }
    }

    fn from_error(error: &Error) -> Option<Self> {
        is_connect_failure(error).then_some(Self::ServerDown)
    }
}

impl PreparedRequest {
    /// Creates the request. While `streaming` is on, answers are streamed where that is possible.
    pub(super) fn new(
        uri: Uri,
        credentials: &HeaderMap,
        body: Bytes,
        read_timeout: Duration,
        streaming: Arc<Streaming>,
    ) -> Self {
        let mut headers = credentials.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let facts = RequestFacts::read(&Method::POST, &uri, &headers, Some(&body));
        let (name, version) = ANTHROPIC_VERSION;
        if facts.dialect == Dialect::AnthropicMessages && !headers.contains_key(&name) {
            headers.insert(name, version);
        }
        let streamed_body = streaming.is_on().then(|| streamed_request(facts.dialect, &body)).flatten();
        Self { uri, headers, body, streamed_body, facts, read_timeout, streaming, failed_stream: None }
    }

    /// Returns the size of the bodies in memory.
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + self.streamed_body.as_ref().map_or(0, Bytes::len)
    }

    fn request(&self, body: Bytes, queued: QueuedCall) -> HttpRequest<RequestBody> {
        let mut request = HttpRequest::new(RequestBody::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let extensions = request.extensions_mut();
        extensions.insert(Context { lane: Lane::Batch, ..Context::default() });
        extensions.insert(Timeouts { read: Some(self.read_timeout), pool: None });
        extensions.insert(queued);
        request
    }

    /// Sends the request and reads the whole response. Sends it again without streaming if the
    /// provider rejects the stream. The first call of this function requests a stream, if answers
    /// are streamed, and so does a call after a result with [`CallResult::waits_for`]. Other calls
    /// do not. `queued` counts the call as waiting until the first request is sent.
    pub(super) async fn send(&mut self, client: &Client, queued: &QueuedCall) -> CallResult {
        let streamed = self.streamed_body.take().filter(|_| self.streaming.is_on());
        let is_streamed = streamed.is_some();
        let mut result = self.attempt(client, streamed.clone(), queued).await;
        if is_streamed
            && let Ok(CallResult { outcome: LineOutcome::Answered(answer), .. }) = &result
            && STREAM_REJECTED.contains(&answer.status)
        {
            result = self.attempt(client, None, queued).await;
            if result.as_ref().is_ok_and(|result| result.outcome.is_good()) {
                self.streaming.switch_off();
            }
        }
        match &result {
            Err((_, true)) if is_streamed => self.failed_stream = Some(self.streaming.joined()),
            Ok(result) if result.outcome.is_good() => match self.failed_stream.take() {
                Some(joined) => self.streaming.on_failure(joined),
                None if is_streamed => self.streaming.on_joined(),
                None => {}
            },
            _ => {}
        }
        let result = result.unwrap_or_else(|(error, has_begun)| CallResult {
            outcome: LineOutcome::Failed(line_error(&error)),
            usage: None,
            is_above_ceiling: CeilingReached::is_source_of(&error),
            is_retryable: has_begun,
            waits_for: WaitReason::from_error(&error).filter(|_| !has_begun),
        });
        if result.waits_for.is_some() {
            self.streamed_body = streamed;
        }
        result
    }

    /// Sends the request once, with the body `streamed` if there is one, and reads the whole
    /// response. If the status is a success and the body is an error, the outcome has the status
    /// that the error names. If the body is not a JSON object, the outcome is a failure, because it
    /// is a page of a proxy or was cut off. The flag in the error is `true` if the error occurred
    /// after the response began.
    async fn attempt(
        &self,
        client: &Client,
        streamed: Option<Bytes>,
        queued: &QueuedCall,
    ) -> Result<CallResult, (Error, bool)> {
        let is_streamed = streamed.is_some();
        let request = self.request(streamed.unwrap_or_else(|| self.body.clone()), queued.clone());
        let response = client.call(request).await.map_err(|error| (error, false))?;
        let (mut head, body) = response.into_parts();
        // Errors have JSON bodies, and some servers answer without streaming.
        let json = HeaderValue::from_static("application/json");
        let is_json = |kind: &HeaderValue| kind.as_bytes().starts_with(json.as_bytes());
        let body = if is_streamed
            && head.status.is_success()
            && !head.headers.get(CONTENT_TYPE).is_some_and(is_json)
        {
            read_stream(body).await
        } else {
            body.collect().await.map(Collected::to_bytes)
        };
        let body = body.map_err(|error| (error, true))?;
        let id = REQUEST_ID_HEADERS
            .iter()
            .find_map(|name| head.headers.get(*name)?.to_str().ok())
            .unwrap_or_default();
        let response = ProviderResponse::new(head.status.as_u16(), id, &body);
        let is_success = head.status.is_success();
        if is_success && !response.body.get().starts_with('{') {
            return Ok(CallResult {
                outcome: LineOutcome::Failed(invalid_response(&response)),
                usage: None,
                is_above_ceiling: false,
                is_retryable: true,
                waits_for: None,
            });
        }
        // The gate has added this header.
        head.headers.remove(SHOULD_RETRY);
        let rejection = (!is_success && !queued.forbids_retry()).then(|| {
            // A date is read together with the server's own clock, the header `Date`.
            classify(head.status, &head.headers, &body, SystemTime::UNIX_EPOCH)
        });
        // Some servers send JSON with another type.
        head.headers.insert(CONTENT_TYPE, json);
        let mut observer = Observer::new(self.facts.dialect, &head.headers, false);
        let mut verdict = None;
        let mut on_signal = |signal: Signal| {
            if let Signal::Error(error) = signal {
                verdict = Some(error);
            }
        };
        observer.push(&body, &mut on_signal);
        observer.finish(&mut on_signal);
        // An error whose status says so is classified by the gate.
        let by_object = || is_error_object(&body).then(|| classify_event(&body));
        let verdict = verdict.or_else(by_object).or_else(|| choice_error(&body)).filter(|_| is_success);
        let status = verdict.as_ref().map_or(response.status, |verdict| verdict.status);
        // A request that was not executed has used nothing. Some servers do not report the usage of
        // others, and a stream may end without it.
        let never_executed = verdict.as_ref().is_some_and(|verdict| verdict.never_executed);
        // After an overload with the status of a success, the server does not count as down.
        let waits_for = match (&rejection, &verdict) {
            (Some(rejection), _) => WaitReason::from_verdict(rejection),
            (None, Some(error)) => {
                WaitReason::from_verdict(error).filter(|reason| *reason == WaitReason::RateLimit)
            }
            (None, None) => None,
        };
        Ok(CallResult {
            outcome: LineOutcome::Answered(ProviderResponse { status, ..response }),
            usage: observer.usage().or_else(|| never_executed.then(Usage::default)),
            is_above_ceiling: false,
            is_retryable: verdict.is_some_and(|verdict| verdict.retryable),
            waits_for,
        })
    }
}

/// Returns `true` if a body is an error of the kind `{"object": "error", "message": ...}`, which
/// older versions of vLLM send.
fn is_error_object(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Top<'a> {
        #[serde(borrow)]
        object: Option<Cow<'a, str>>,
    }
    serde_json::from_slice::<Top<'_>>(body).is_ok_and(|top| top.object.as_deref() == Some("error"))
}

/// Returns the error of a response whose status is a success, but whose body is not a JSON object.
fn invalid_response(response: &ProviderResponse) -> LineError {
    let start: String = response.body.get().chars().take(200).collect();
    let text = format!("the body of the response (status {}) is not a JSON object: {start}", response.status);
    LineError::new("invalid_response", text)
}

/// Reads a stream to its end, and returns its answer in the form that it has without streaming.
async fn read_stream(mut body: ResponseBody) -> Result<Bytes, Error> {
    let mut answer = StreamedAnswer::new();
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            answer.push(&chunk);
        }
    }
    answer.finish().map_err(|problem| Error::new(ErrorKind::Transport, problem))
}

fn line_error(error: &Error) -> LineError {
    let code = error.kind().reason().map_or(error.kind().as_str(), |reason| reason.as_str());
    LineError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_version_of_the_api_on_any_host() {
        let (name, version) = ANTHROPIC_VERSION;
        let value = |path: &str, headers: &HeaderMap| {
            let uri: Uri = format!("https://gateway.example/v1/{path}").parse().unwrap();
            let streaming = Arc::new(Streaming::new(false));
            let body = Bytes::from_static(b"{}");
            let request = PreparedRequest::new(uri, headers, body, Duration::from_secs(1), streaming);
            request.headers.get(&name).cloned()
        };
        assert_eq!(value("messages", &HeaderMap::new()), Some(version));
        assert_eq!(value("chat/completions", &HeaderMap::new()), None);
        let own = HeaderValue::from_static("2024-01-01");
        assert_eq!(value("messages", &HeaderMap::from_iter([(name.clone(), own.clone())])), Some(own));
    }
}
