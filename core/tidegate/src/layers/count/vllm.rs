//! Counts prompt tokens with vLLM's `/tokenize` endpoint, which applies the chat template and
//! counts as the engine does.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tower::ServiceExt;

use super::Counters;
use crate::body::RequestBody;
use crate::transport::gate_request::GateRequest;
use crate::transport::{ProxyRules, Transport};
use tidegate_protocol::json_edit::Object;
use tidegate_protocol::{Dialect, RequestFacts};

/// The fields of a chat or completion request that `/tokenize` accepts.
const FORWARDED_MEMBERS: [&str; 10] = [
    "model",
    "messages",
    "prompt",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
];

/// Maximum length of a response of `/tokenize`, in bytes: 16 MiB. A longer response counts as a
/// failure. Responses list the tokens, at about seven bytes each.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The part of a `/tokenize` response that the gate reads: the number of tokens.
#[derive(Deserialize)]
struct TokenizeResponse {
    count: u64,
}

/// Returns the counting request for the prompt of a request to `uri`. It has the caller's headers,
/// credentials included, and uses `proxies` if the caller has set any. Returns `None` if the prompt
/// cannot be counted by this endpoint.
pub(super) async fn prepare(
    counters: &Counters,
    facts: &RequestFacts,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
    proxies: Option<ProxyRules>,
) -> Option<Request<RequestBody>> {
    let uri = endpoint(facts.dialect, uri)?;
    let body = counters.run(headers.clone(), body, tokenize_body).await?;
    let mut request = Request::post(uri).body(body.into()).ok()?;
    *request.headers_mut() = tokenize_headers(headers);
    request.extensions_mut().insert(GateRequest::Query);
    if let Some(proxies) = proxies {
        request.extensions_mut().insert(proxies);
    }
    Some(request)
}

/// Sends a counting request, and returns the number of tokens that the server has counted. Returns
/// `None` if the server does not respond, or responds without a count.
pub(super) async fn ask(request: Request<RequestBody>, transport: Transport) -> Option<u64> {
    let response = transport.oneshot(request).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await.ok()?;
    let answer: TokenizeResponse = serde_json::from_slice(&body.to_bytes()).ok()?;
    Some(answer.count)
}

/// Returns the URL of `/tokenize` on the server of `uri`, with the same path prefix before it as
/// before `/v1/chat/completions` or `/v1/completions` in `uri`. Returns `None` if `uri` is neither
/// of these endpoints.
pub(super) fn endpoint(dialect: Dialect, uri: &Uri) -> Option<Uri> {
    let suffix = match dialect {
        Dialect::OpenAiChat => "/v1/chat/completions",
        Dialect::OpenAiCompletions => "/v1/completions",
        _ => return None,
    };
    let root = uri.path().trim_end_matches('/').strip_suffix(suffix)?;
    let path = match uri.query() {
        Some(query) => format!("{root}/tokenize?{query}"),
        None => format!("{root}/tokenize"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns the request body with only the members that `/tokenize` accepts ([`FORWARDED_MEMBERS`]).
/// Returns `None` if the body is not a JSON object.
fn tokenize_body(body: &[u8]) -> Option<Vec<u8>> {
    let object = Object::read(body)?;
    Some(object.without(|member| !FORWARDED_MEMBERS.contains(&&*member.key)))
}

/// Returns the caller's headers for a `/tokenize` request, without those that describe the caller's
/// body or the format of its response.
fn tokenize_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING, EXPECT, ACCEPT, ACCEPT_ENCODING] {
        headers.remove(name);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}
