//! A provider with a token quota, for experiments in virtual time.
//!
//! The provider counts tokens, rejects calls and reports limits as real providers do, and keeps its
//! own totals. The true token counts of a call are in its headers `x-true-input` and
//! `x-true-output`, and its `max_tokens` in `x-true-max`. The gate does not read these headers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;
use tidegate::{RequestBody, ResponseBody, Transport};
use tokio::time::Instant;
use tower::service_fn;

/// How a provider charges a call against its tokens per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Input plus `max_tokens`, charged at arrival.
    Sum,
    /// The larger of input and `max_tokens`, charged at arrival.
    Larger,
    /// Input, charged at arrival, and output, charged when the answer ends.
    Actual,
}

/// How a provider meters tokens per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meter {
    /// A token bucket that refills continuously at `tpm / 60` tokens per second. The number is the
    /// bucket's capacity, in seconds of that rate.
    Bucket(u32),
    /// A counter of used tokens that resets every minute.
    Fixed,
    /// A sum of the tokens used in the last 60 s.
    Sliding,
}

/// The terms of a simulated provider: its quota, how it charges calls, and what its answers report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) tpm: f64,
    pub(crate) counts: Counts,
    pub(crate) meter: Meter,
    /// Whether answers carry `x-ratelimit-*` headers.
    pub(crate) headers: bool,
    /// The number of tokens per minute that other clients take from the same quota.
    pub(crate) others: f64,
    /// The token limits, in tokens per minute, that the answers announce: one per answer, in turn,
    /// like a gateway in front of several backends. Such answers do not announce the remaining
    /// tokens.
    ///
    /// With `None`, answers announce the true limit and the remaining tokens. If `headers` is
    /// `false`, answers announce nothing.
    pub(crate) announced: Option<&'static [u64]>,
}

/// The `max_tokens`, in tokens, of a request without the header `x-true-max`.
const MOST_OUTPUT: u64 = 4_096;
const FIRST_TOKEN: Duration = Duration::from_millis(300);
const EACH_TOKEN: Duration = Duration::from_millis(15);

/// The calls and tokens that the provider has counted since the last [`Provider::begin`], or since
/// its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Tokens of accepted calls, by the provider's way of counting ([`Counts`]).
    pub(crate) counted: f64,
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
}

#[derive(Debug)]
struct State {
    level: f64,
    at: Instant,
    window: VecDeque<(Instant, f64)>,
    totals: Totals,
}

/// A simulated provider. See the [module documentation](self).
#[derive(Clone)]
pub(crate) struct Provider {
    terms: Terms,
    began: Instant,
    state: Arc<Mutex<State>>,
}

impl Provider {
    pub(crate) fn new(terms: Terms) -> Self {
        let now = Instant::now();
        let state =
            State { level: terms.depth(), at: now, window: VecDeque::new(), totals: Totals::default() };
        Self { terms, began: now, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns a transport that answers requests from this provider. All transports share one
    /// quota.
    pub(crate) fn transport(&self) -> Transport {
        let provider = self.clone();
        Transport::new(service_fn(move |request| {
            let provider = provider.clone();
            async move { Ok(provider.answer(request).await) }
        }))
    }

    /// Sets the totals to zero. Experiments call this at the end of the warm-up.
    pub(crate) fn begin(&self) {
        self.state.lock().totals = Totals::default();
    }

    pub(crate) fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    async fn answer(self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let header = |name: &str| request.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let input = header("x-true-input").unwrap_or(1);
        let asked = header("x-true-max").unwrap_or(MOST_OUTPUT);
        let output = header("x-true-output").unwrap_or(1).min(asked);
        let at_arrival = match self.terms.counts {
            Counts::Sum => input + asked,
            Counts::Larger => input.max(asked),
            Counts::Actual => input,
        } as f64;
        let refused = {
            let mut state = self.state.lock();
            let wait = state.wait(&self.terms, self.began, at_arrival);
            match wait {
                None => {
                    state.take(&self.terms, at_arrival);
                    state.totals.accepted += 1;
                }
                Some(_) => state.totals.refused += 1,
            }
            wait
        };
        if let Some(wait) = refused {
            let mut response = self.head(http::StatusCode::TOO_MANY_REQUESTS, "{\"error\": {\"message\": \"Rate limit reached\", \"type\": \"tokens\", \"code\": \"rate_limit_exceeded\"}}".to_owned());
            response.headers_mut().insert("retry-after-ms", (wait.as_millis() as u64 + 1).into());
            return response;
        }
        // The head is made at arrival, and sent together with the whole answer.
        let head = self.head(http::StatusCode::OK, String::new());
        tokio::time::sleep(FIRST_TOKEN + EACH_TOKEN * output as u32).await;
        if self.terms.counts == Counts::Actual {
            self.state.lock().take(&self.terms, output as f64);
        }
        let body = serde_json::json!({
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
        });
        head.map(|_| ResponseBody::full(body.to_string()))
    }

    fn head(&self, status: http::StatusCode, body: String) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::full(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("application/json"));
        if self.terms.headers {
            let mut state = self.state.lock();
            if let Some(announced) = self.terms.announced {
                let turn = state.totals.accepted + state.totals.refused;
                if let Some(limit) = announced.iter().cycle().nth(turn % announced.len().max(1)) {
                    headers.insert("x-ratelimit-limit-tokens", (*limit).into());
                }
                return response;
            }
            let (remaining, reset) = state.left(&self.terms, self.began);
            headers.insert("x-ratelimit-limit-tokens", (self.terms.tpm as u64).into());
            headers.insert("x-ratelimit-remaining-tokens", (remaining.max(0.0) as u64).into());
            if let Ok(reset) = http::HeaderValue::from_str(&format!("{}ms", (reset * 1e3).ceil() as u64)) {
                headers.insert("x-ratelimit-reset-tokens", reset);
            }
        }
        response
    }
}

impl Terms {
    fn depth(&self) -> f64 {
        match self.meter {
            Meter::Bucket(seconds) => self.tpm / 60.0 * f64::from(seconds),
            Meter::Fixed | Meter::Sliding => self.tpm,
        }
    }
}

impl State {
    /// Updates `level`, the tokens that are available, to the current time: refills the bucket, or
    /// drops the charges that are older than the window. Also subtracts what other clients have
    /// used since the last update.
    fn pass(&mut self, terms: &Terms, began: Instant) {
        let now = Instant::now();
        let per_second = terms.tpm / 60.0;
        let passed = (now - self.at).as_secs_f64();
        let others = terms.others / 60.0 * passed;
        match terms.meter {
            Meter::Bucket(_) => self.level = (self.level + per_second * passed - others).min(terms.depth()),
            Meter::Fixed => {
                let minute = |at: Instant| (at - began).as_secs() / 60;
                self.level = if minute(now) > minute(self.at) { terms.tpm } else { self.level - others };
            }
            Meter::Sliding => {
                if others > 0.0 {
                    self.window.push_back((now, others));
                }
                while self.window.front().is_some_and(|(at, _)| now - *at >= Duration::from_secs(60)) {
                    self.window.pop_front();
                }
                self.level = terms.tpm - self.window.iter().map(|(_, cost)| cost).sum::<f64>();
            }
        }
        self.at = now;
    }

    /// Returns the time until `cost` tokens are available or, if the meter is not a bucket, until
    /// the reset. `None` if they are available now.
    ///
    /// A call larger than the whole quota is accepted when nothing of the quota is used.
    fn wait(&mut self, terms: &Terms, began: Instant, cost: f64) -> Option<Duration> {
        self.pass(terms, began);
        let needed = cost.min(terms.depth());
        if self.level + 1e-6 >= needed {
            return None;
        }
        let (_, reset) = self.left(terms, began);
        let seconds = match terms.meter {
            Meter::Bucket(_) => (needed - self.level) / (terms.tpm / 60.0),
            Meter::Fixed | Meter::Sliding => reset,
        };
        Some(Duration::from_secs_f64(seconds.max(0.001)))
    }

    fn take(&mut self, terms: &Terms, cost: f64) {
        self.totals.counted += cost;
        match terms.meter {
            Meter::Sliding => self.window.push_back((Instant::now(), cost)),
            Meter::Bucket(_) | Meter::Fixed => self.level -= cost,
        }
    }

    /// Returns the available tokens, and the reset time in seconds: until the bucket is full, until
    /// the next minute begins, or until the oldest charge leaves the sliding window.
    fn left(&mut self, terms: &Terms, began: Instant) -> (f64, f64) {
        self.pass(terms, began);
        let missing = terms.depth() - self.level;
        let reset = match terms.meter {
            Meter::Bucket(_) => missing / (terms.tpm / 60.0),
            Meter::Fixed => 60.0 - (Instant::now() - began).as_secs_f64() % 60.0,
            Meter::Sliding => {
                self.window.front().map_or(0.0, |(at, _)| 60.0 - (Instant::now() - *at).as_secs_f64())
            }
        };
        (self.level, reset)
    }
}
