//! What is asked: the traces' lengths, with texts and limits that were made for them.
//!
//! - Each call is of one of four tenants, each with prompts of one style ([`Style`]), so that bytes for each token differ by more than two times.
//! - `max_tokens` as people set it: none in 15 % of the calls, else one of 256 to 8,192, whatever the answer will be; an answer is cut by it.
//! - Calls come in the traces' order from a random place on, by 96 callers who each ask again at once: there is always a backlog.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use tidegate::{Context, RequestBody, Transport};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::Fallible;
use crate::text::{Corpora, Style};
use crate::traces::azure;
use crate::traffic::URL;

/// Callers.
pub(super) const WORKERS: usize = 96;
/// More than any run gets through.
const CALLS: usize = 6_000;
const LIMITS: [u64; 8] = [256, 512, 512, 1_024, 1_024, 2_048, 4_096, 8_192];

pub(super) struct Load {
    pub(super) seed: u64,
    calls: Vec<Call>,
}

struct Call {
    tenant: Arc<str>,
    body: Bytes,
    pub(super) input: u64,
    output: u64,
    most: Option<u64>,
}

impl Load {
    pub(super) fn new(trace: &str, seed: u64) -> Fallible<Self> {
        let (lengths, corpora) = (azure(trace)?, Corpora::new());
        let mut rng = Rng::with_seed(seed);
        let start = rng.usize(..lengths.len());
        let calls = lengths.iter().cycle().skip(start).take(CALLS).map(|length| {
            let style = *rng.choice(Style::ALL.iter()).unwrap_or(&Style::English);
            let (text, tokens) = corpora.text(style, length.input as usize, &mut rng);
            let most = (rng.f64() >= 0.15).then(|| rng.choice(LIMITS)).flatten();
            let output = u64::from(length.output.max(1)).min(most.unwrap_or(u64::MAX));
            let mut body = serde_json::json!({
                "model": "gpt-4o",
                "messages": [{"role": "user", "content": text}],
            });
            if let Some(most) = most {
                body["max_tokens"] = most.into();
            }
            let tenant = format!("{style:?}").to_lowercase().into();
            // Seven tokens frame one message, as OpenAI counts.
            Call { tenant, body: body.to_string().into(), input: tokens as u64 + 7, output, most }
        });
        Ok(Self { seed, calls: calls.collect() })
    }

    /// One caller.
    pub(super) async fn work(self: Arc<Self>, through: Transport, next: Arc<AtomicUsize>, until: Instant) {
        while Instant::now() < until {
            let Some(call) = self.calls.get(next.fetch_add(1, Ordering::Relaxed) % self.calls.len()) else {
                return;
            };
            if let Ok(response) = through.clone().oneshot(call.request()).await {
                let _ = response.into_body().collect().await;
            }
        }
    }

    /// The first calls, as requests.
    pub(super) fn requests(&self, count: usize) -> impl Iterator<Item = Request<RequestBody>> {
        self.calls.iter().take(count).map(Call::request)
    }
}

impl Call {
    fn request(&self) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::from(self.body.clone()));
        *request.method_mut() = Method::POST;
        // A constant base and a constant path: falls back to `/` never.
        *request.uri_mut() = format!("{URL}/v1/chat/completions").parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("x-true-input", self.input.into());
        headers.insert("x-true-output", self.output.into());
        headers.insert("x-true-max", self.most.unwrap_or(0).into());
        request.extensions_mut().insert(Context { tenant: Some(self.tenant.clone()), ..Context::default() });
        request
    }
}
