//! Lengths of real calls: the LLM inference traces that Azure published in 2023, read from beside the repository.

use std::sync::Arc;

use fastrand::Rng;
use http::Request;
use tidegate::{Context, Lane, RequestBody};

use crate::Fallible;
use crate::traces::azure;
use crate::traffic::URL;

/// One call: what it sends, and what it will get. The gate is not told the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) prompt: u32,
    pub(crate) output: u32,
}

impl Work {
    pub(crate) fn total(&self) -> u32 {
        self.prompt + self.output
    }

    /// A chat completion that streams, and asks for usage: text of that many tokens, as the simulator counts them, and a `max_tokens` that says
    /// nothing of the answer.
    pub(crate) fn request(&self, tenant: &str, lane: Lane, max_tokens: u32) -> Request<RequestBody> {
        self.ask(tenant, lane, max_tokens, true)
    }

    /// The same, whole where it does not stream.
    pub(crate) fn ask(
        &self,
        tenant: &str,
        lane: Lane,
        max_tokens: u32,
        streams: bool,
    ) -> Request<RequestBody> {
        let content = "tide".repeat(self.prompt as usize);
        let messages = serde_json::json!([{"role": "user", "content": content}]);
        self.ask_with(messages, tenant, lane, max_tokens, streams)
    }

    /// The same, of these messages.
    pub(crate) fn ask_with(
        &self,
        messages: serde_json::Value,
        tenant: &str,
        lane: Lane,
        max_tokens: u32,
        streams: bool,
    ) -> Request<RequestBody> {
        let mut body = serde_json::json!({
            "model": "sim",
            "messages": messages,
            "max_tokens": max_tokens,
            "stream": streams,
        });
        if streams {
            body["stream_options"] = serde_json::json!({"include_usage": true});
        }
        let mut request = Request::new(RequestBody::from(body.to_string().into_bytes()));
        *request.method_mut() = http::Method::POST;
        // A constant base and a constant path: falls back to `/` never.
        *request.uri_mut() = format!("{URL}/v1/chat/completions").parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("application/json"));
        headers.insert("x-sim-output-tokens", http::HeaderValue::from(self.output));
        if let Ok(tenant) = http::HeaderValue::from_str(tenant) {
            headers.insert("x-tenant", tenant);
        }
        let tenant: Option<Arc<str>> = Some(tenant.into());
        request.extensions_mut().insert(Context { tenant, lane, ..Context::default() });
        request
    }
}

/// The traces, read once.
#[derive(Debug)]
pub(crate) struct Traces {
    conv: Vec<Work>,
    code: Vec<Work>,
}

impl Traces {
    /// Reads them, leaving out what an engine of this model length could not take.
    pub(crate) fn read(longest: u32) -> Fallible<Self> {
        Ok(Self { conv: trace("conv", longest)?, code: trace("code", longest)? })
    }

    /// Conversations, in the order of the trace from a place that the generator chooses, over and over: 1,155 tokens in and 211 out, in the mean.
    pub(crate) fn conversations(&self, rng: &mut Rng) -> impl Iterator<Item = Work> {
        from(&self.conv, rng)
    }

    /// Completions of code, likewise: 2,048 tokens in and 28 out, in the mean.
    pub(crate) fn code(&self, rng: &mut Rng) -> impl Iterator<Item = Work> {
        from(&self.code, rng)
    }
}

fn from<'a>(trace: &'a [Work], rng: &mut Rng) -> impl Iterator<Item = Work> + use<'a> {
    trace.iter().copied().cycle().skip(rng.usize(..trace.len()))
}

/// A whole number from a log-normal distribution, bounded.
pub(crate) fn log_normal(rng: &mut Rng, median: f64, sigma: f64, bounds: (f64, f64)) -> u32 {
    // Box and Muller; `1 - u` is never 0.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
    (median * (sigma * normal).exp()).clamp(bounds.0, bounds.1) as u32
}

fn trace(name: &str, longest: u32) -> Fallible<Vec<Work>> {
    let calls =
        azure(name)?.into_iter().map(|call| Work { prompt: call.input.max(1), output: call.output.max(1) });
    Ok(calls.filter(|work| work.total() <= longest).collect())
}
