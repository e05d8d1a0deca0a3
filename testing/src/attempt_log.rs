//! The attempts that a fake target received.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use serde::Serialize;
use tidegate::internals::Call;
use tidegate::protocol::request::RequestFacts;
use tokio::time::Instant;

/// Names of headers whose values are not recorded, because they carry credentials.
const CREDENTIAL_HEADERS: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "x-amz-security-token",
    "cookie",
];

/// Whether an attempt is in flight, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// The attempt is in flight.
    InFlight,
    /// The script's answer was sent completely, whatever the answer was.
    Answered,
    /// The caller dropped the attempt before the answer was complete.
    Cancelled,
}

/// One attempt, as the fake target received it. Times are in seconds since the start of the target,
/// in whole microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedAttempt {
    /// Number of the call, from 0 in order of the calls' first attempts. A request that no gate
    /// sent is a call of its own.
    pub call: usize,
    /// Number of the attempt within its call, from 1.
    pub attempt: usize,
    /// HTTP method of the request.
    pub method: String,
    /// URL without its query, because the query may contain a key.
    pub url: String,
    /// Path of the URL.
    pub path: String,
    /// Model that the request names, or `None` if it names none.
    pub model: Option<String>,
    /// Whether the request asks for a stream.
    pub stream: bool,
    /// Names and values of the headers. The value of a credential is `***`.
    pub headers: Vec<(String, String)>,
    /// Body as text. Bytes that are not UTF-8 are replaced.
    pub body: String,
    /// Kind of the answer: `reply`, `status`, `overloaded` or `refuse` (see
    /// [`ScriptedAnswer`](crate::ScriptedAnswer)); `capacity` or `rate`, a 429 because the route
    /// has reached this limit; or `unmatched`, if the script had no answer.
    pub answer: &'static str,
    /// HTTP status of the answer, or `None` if the connection was refused or the script had no
    /// answer.
    pub status: Option<u16>,
    /// The progress of the attempt: in flight, or how it ended.
    pub outcome: AttemptState,
    /// Time of arrival, in seconds since the target's start.
    pub arrived: f64,
    /// End time, in seconds since the target's start. `None` while the attempt is in flight.
    pub ended: Option<f64>,
}

/// A record of all attempts of a fake target, with counts of those in flight.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    pub(crate) start: Instant,
    attempts: Vec<RecordedAttempt>,
    // By the call identifier of the process: number of the call, and number of its attempts.
    calls: HashMap<u64, (usize, usize)>,
    next_call: usize,
    pub(crate) unmatched: Vec<String>,
    pub(crate) in_flight: usize,
    pub(crate) max_in_flight: usize,
}

impl AttemptLog {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            attempts: Vec::new(),
            calls: HashMap::new(),
            next_call: 0,
            unmatched: Vec::new(),
            in_flight: 0,
            max_in_flight: 0,
        }
    }

    pub(crate) fn attempts(&self) -> &[RecordedAttempt] {
        &self.attempts
    }

    pub(crate) fn start_attempt<B>(
        &mut self,
        request: &Request<B>,
        facts: &RequestFacts,
        body: &Bytes,
    ) -> usize {
        let (call, attempt) = self.call_and_attempt(request.extensions().get::<Call>());
        let uri = request.uri();
        self.attempts.push(RecordedAttempt {
            call,
            attempt,
            method: request.method().to_string(),
            url: without_query(&uri.to_string()).to_owned(),
            path: uri.path().to_owned(),
            model: facts.model.as_deref().map(str::to_owned),
            stream: facts.stream,
            headers: redacted_headers(request.headers()),
            body: String::from_utf8_lossy(body).into_owned(),
            answer: "unmatched",
            status: None,
            outcome: AttemptState::InFlight,
            arrived: self.seconds_since_start(Instant::now()),
            ended: None,
        });
        self.in_flight += 1;
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
        self.attempts.len() - 1
    }

    pub(crate) fn set_answer(&mut self, attempt: usize, answer: &'static str, status: Option<u16>) {
        if let Some(attempt) = self.attempts.get_mut(attempt) {
            (attempt.answer, attempt.status) = (answer, status);
        }
    }

    pub(crate) fn end_attempt(&mut self, attempt: usize, outcome: AttemptState) {
        let now = self.seconds_since_start(Instant::now());
        if let Some(attempt) = self.attempts.get_mut(attempt) {
            (attempt.outcome, attempt.ended) = (outcome, Some(now));
        }
        self.in_flight -= 1;
    }

    fn call_and_attempt(&mut self, call: Option<&Call>) -> (usize, usize) {
        let next = self.next_call;
        let Some(call) = call else {
            self.next_call += 1;
            return (next, 1);
        };
        let (number, attempts) = self.calls.entry(call.id()).or_insert((next, 0));
        *attempts += 1;
        if *attempts == 1 {
            self.next_call += 1;
        }
        (*number, *attempts)
    }

    fn seconds_since_start(&self, moment: Instant) -> f64 {
        // Whole microseconds, so that the values of two runs compare equal.
        let passed: Duration = moment.saturating_duration_since(self.start);
        passed.as_micros() as f64 / 1e6
    }
}

fn without_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(base, _)| base)
}

fn redacted_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &str, value: &http::HeaderValue| {
        if CREDENTIAL_HEADERS.contains(&name) {
            "***".to_owned()
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        }
    };
    headers.iter().map(|(name, v)| (name.as_str().to_owned(), value(name.as_str(), v))).collect()
}
