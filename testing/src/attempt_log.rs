//! What a fake target saw.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use serde::Serialize;
use tidegate::call::Call;
use tidegate::wire::request::RequestFacts;
use tokio::time::Instant;

/// Headers whose values are credentials.
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

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Under way.
    InFlight,
    /// Answered as scripted, to the end, whatever that was.
    Answered,
    /// Given up by the caller before its end.
    Cancelled,
}

/// One attempt, as it arrived. Times are seconds since the target's start.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedAttempt {
    /// Which call it belongs to: 0 for the first that arrived.
    pub call: usize,
    /// Which of that call's attempts it is: 1 for the first.
    pub attempt: usize,
    /// The method.
    pub method: String,
    /// The URL without its query, which may hold a key.
    pub url: String,
    /// The URL's path.
    pub path: String,
    /// The model, where the request names one.
    pub model: Option<String>,
    /// Whether it asks for a stream.
    pub stream: bool,
    /// Its headers; the values of credentials are `***`.
    pub headers: Vec<(String, String)>,
    /// Its body, as text.
    pub body: String,
    /// What it was answered with: `reply`, `status`, `overloaded`, `refuse`, `capacity`, `rate` or `unmatched`.
    pub answer: &'static str,
    /// The status, where it came to one.
    pub status: Option<u16>,
    /// What became of it.
    pub outcome: AttemptState,
    /// When it arrived.
    pub arrived: f64,
    /// When it ended.
    pub ended: Option<f64>,
}

/// Everything so far.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    pub(crate) start: Instant,
    attempts: Vec<RecordedAttempt>,
    // The numbers of the process's calls, by ours, and how many attempts each made.
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

    pub(crate) fn begin<B>(&mut self, request: &Request<B>, facts: &RequestFacts, body: &Bytes) -> usize {
        let (call, attempt) = self.number(request.extensions().get::<Call>());
        let uri = request.uri();
        self.attempts.push(RecordedAttempt {
            call,
            attempt,
            method: request.method().to_string(),
            url: without_query(&uri.to_string()).to_owned(),
            path: uri.path().to_owned(),
            model: facts.model.as_deref().map(str::to_owned),
            stream: facts.stream,
            headers: shown(request.headers()),
            body: String::from_utf8_lossy(body).into_owned(),
            answer: "unmatched",
            status: None,
            outcome: AttemptState::InFlight,
            arrived: self.since(Instant::now()),
            ended: None,
        });
        self.in_flight += 1;
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
        self.attempts.len() - 1
    }

    pub(crate) fn answered(&mut self, attempt: usize, answer: &'static str, status: Option<u16>) {
        if let Some(attempt) = self.attempts.get_mut(attempt) {
            (attempt.answer, attempt.status) = (answer, status);
        }
    }

    pub(crate) fn end(&mut self, attempt: usize, outcome: AttemptState) {
        let now = self.since(Instant::now());
        if let Some(attempt) = self.attempts.get_mut(attempt) {
            (attempt.outcome, attempt.ended) = (outcome, Some(now));
        }
        self.in_flight -= 1;
    }

    fn number(&mut self, call: Option<&Call>) -> (usize, usize) {
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

    fn since(&self, moment: Instant) -> f64 {
        // Whole microseconds, so that the figures of two runs compare equal.
        let passed: Duration = moment.saturating_duration_since(self.start);
        passed.as_micros() as f64 / 1e6
    }
}

fn without_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(place, _)| place)
}

fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &str, value: &http::HeaderValue| {
        if CREDENTIAL_HEADERS.contains(&name) {
            "***".to_owned()
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        }
    };
    headers.iter().map(|(name, v)| (name.as_str().to_owned(), value(name.as_str(), v))).collect()
}
