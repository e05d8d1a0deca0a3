//! Prompt and output lengths of calls, in tokens, from the LLM inference traces that Azure
//! published in 2023.

use std::sync::Arc;

use fastrand::Rng;
use http::Request;
use tidegate::{Context, Lane, RequestBody};

use crate::Fallible;
use crate::client_call::URL;
use crate::traces::azure;

/// The prompt and output lengths of one call, in tokens. The gate never reads `output`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) prompt: u32,
    pub(crate) output: u32,
}

impl Work {
    /// Returns the total of prompt and output tokens.
    pub(crate) fn total(&self) -> u32 {
        self.prompt + self.output
    }

    /// Returns a streaming chat completion request.
    ///
    /// The content has `self.prompt` tokens as the simulator counts them, and a header makes the
    /// simulator answer with `self.output` tokens.
    pub(crate) fn request(&self, tenant: &str, lane: Lane, max_tokens: u32) -> Request<RequestBody> {
        self.ask(tenant, lane, max_tokens, true)
    }

    /// Like [`Work::request`], but the answer is one JSON object if `streams` is `false`.
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

    /// Like [`Work::ask`], with `messages` instead of a content of `self.prompt` tokens.
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
        // The base and the path are constants, so the fallback to `/` is never used.
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

/// The call lengths of Azure's two traces, conversations and code completions, without calls that
/// are too long for the simulated engine.
#[derive(Debug)]
pub(crate) struct Traces {
    conv: Vec<Work>,
    code: Vec<Work>,
}

impl Traces {
    /// Reads both traces, without calls of more than `longest` tokens (prompt and output together).
    pub(crate) fn read(longest: u32) -> Fallible<Self> {
        Ok(Self { conv: trace("conv", longest)?, code: trace("code", longest)? })
    }

    /// Returns conversations in the order of the trace, endlessly, from a random starting point.
    ///
    /// The mean is 1,155 prompt tokens and 211 output tokens.
    pub(crate) fn conversations(&self, rng: &mut Rng) -> impl Iterator<Item = Work> {
        from(&self.conv, rng)
    }

    /// Returns code completions in the order of the trace, endlessly, from a random starting point.
    ///
    /// The mean is 2,048 prompt tokens and 28 output tokens.
    pub(crate) fn code(&self, rng: &mut Rng) -> impl Iterator<Item = Work> {
        from(&self.code, rng)
    }
}

fn from<'a>(trace: &'a [Work], rng: &mut Rng) -> impl Iterator<Item = Work> + use<'a> {
    trace.iter().copied().cycle().skip(rng.usize(..trace.len()))
}

/// Draws a whole number from a log-normal distribution, clamped to `bounds` (both ends included).
/// `sigma` is the standard deviation of the number's natural logarithm.
pub(crate) fn log_normal(rng: &mut Rng, median: f64, sigma: f64, bounds: (f64, f64)) -> u32 {
    // The Box-Muller transform. `1 - u` is never 0.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
    (median * (sigma * normal).exp()).clamp(bounds.0, bounds.1) as u32
}

fn trace(name: &str, longest: u32) -> Fallible<Vec<Work>> {
    let calls =
        azure(name)?.into_iter().map(|call| Work { prompt: call.input.max(1), output: call.output.max(1) });
    Ok(calls.filter(|work| work.total() <= longest).collect())
}
