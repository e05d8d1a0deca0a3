//! The calls of `tokens`: lengths from the traces, with generated texts and a generated
//! `max_tokens`.
//!
//! - Each call is of one of four tenants, each with prompts of one style ([`Style`]), so that bytes
//!   per token differ by more than a factor of two.
//! - `max_tokens` is set as people set it: 85 % of the calls have a power of two from 256 to 8,192,
//!   regardless of the answer. A longer answer is cut.
//! - Calls are in the trace's order from a random starting point. Each of 96 callers makes its next
//!   call immediately after its last one, so calls are always waiting.

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
use crate::client_call::URL;
use crate::prompt_texts::{Corpora, Style};
use crate::traces::azure;

/// The number of callers. Each makes its next call when its last one has ended.
pub(super) const WORKERS: usize = 96;
/// The number of calls that are drawn. No run needs more.
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

    /// Makes calls, one after the other, until the time `until`. `next` is the index of the next
    /// call, which all callers share.
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

    /// Returns the requests of the first `count` calls.
    pub(super) fn requests(&self, count: usize) -> impl Iterator<Item = Request<RequestBody>> {
        self.calls.iter().take(count).map(Call::request)
    }
}

impl Call {
    fn request(&self) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::from(self.body.clone()));
        *request.method_mut() = Method::POST;
        // The base and the path are constants, so the fallback to `/` is never used.
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
