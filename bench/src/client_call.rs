//! Sends one call, and records its result as the caller sees it.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use tidegate::{Context, RequestBody, Transport};
use tokio::time::Instant;
use tower::ServiceExt;

/// The base URL of the simulated upstream.
pub(crate) const URL: &str = "http://sim.test";

/// A chat completion call of `tenant`. `prompt` and `output` are its lengths in tokens, and
/// `stream` is `true` if the answer streams.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) tenant: &'static str,
    pub(crate) prompt: u32,
    pub(crate) output: u32,
    pub(crate) stream: bool,
}

impl Ask {
    /// Returns the request to the base URL `base`. Its tenant is in the request's context for the
    /// gate, and in the header `x-tenant` for the simulator's statistics.
    pub(crate) fn request(&self, base: &str) -> Request<RequestBody> {
        let body = serde_json::json!({
            "model": "sim",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": self.output,
            "stream": self.stream,
        });
        let mut request = Request::new(RequestBody::from(body.to_string().into_bytes()));
        *request.method_mut() = http::Method::POST;
        // The base and the path are constants, so the fallback to `/` is never used.
        *request.uri_mut() = format!("{base}/v1/chat/completions").parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("application/json"));
        headers.insert("x-tenant", http::HeaderValue::from_static(self.tenant));
        headers.insert("x-sim-prompt-tokens", http::HeaderValue::from(self.prompt));
        let tenant: Option<Arc<str>> = Some(self.tenant.into());
        request.extensions_mut().insert(Context { tenant, ..Context::default() });
        request
    }
}

/// The result of a call, as the caller sees it. Times count from the moment at which the call was
/// made.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The time of the first bytes of the body, or `None` if there were none. The simulator's
    /// streams begin with the first token.
    pub(crate) first: Option<Duration>,
    /// The time at which the call ended: its answer was complete, or it failed.
    pub(crate) took: Duration,
    /// The HTTP status, or `None` if there was no response.
    pub(crate) status: Option<u16>,
    /// Whether the answer was complete and successful.
    pub(crate) ok: bool,
    /// The error text if the client returned an error for the call or while its body was read.
    /// `None` otherwise, even if the status is an error or the stream is incomplete.
    pub(crate) failure: Option<String>,
}

/// Sends `request` through `through`, reads the answer to its end, and returns the call's result.
pub(crate) async fn call(through: Transport, request: Request<RequestBody>) -> Seen {
    call_with(through, request, || {}).await
}

/// Like [`call`], and calls `on_first` at the first bytes of the body.
pub(crate) async fn call_with(
    through: Transport,
    request: Request<RequestBody>,
    mut on_first: impl FnMut(),
) -> Seen {
    let sent = Instant::now();
    let mut seen = Seen { first: None, took: Duration::ZERO, status: None, ok: false, failure: None };
    match through.oneshot(request).await {
        Ok(response) => {
            let streams = response
                .headers()
                .get("content-type")
                .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
            seen.status = Some(response.status().as_u16());
            seen.ok = response.status().is_success();
            let mut body = response.into_body();
            let mut terminal = !streams;
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => {
                        if seen.first.is_none() {
                            seen.first = Some(sent.elapsed());
                            on_first();
                        }
                        terminal |= frame.data_ref().is_some_and(|data| data.ends_with(b"data: [DONE]\n\n"));
                    }
                    Err(error) => {
                        (seen.ok, seen.failure) = (false, Some(error.to_string()));
                        break;
                    }
                }
            }
            seen.ok &= terminal;
        }
        Err(error) => seen.failure = Some(error.to_string()),
    }
    seen.took = sent.elapsed();
    seen
}
