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

/// Why a prompt was not counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CountFailure {
    /// The prompt cannot be counted by this endpoint. The server was not asked.
    NotCountable,
    /// The server did not respond, or responded without a count.
    NoCount,
}

/// Returns the number of tokens in the prompt of a request, as counted by the server at `uri`. The
/// counting request has the caller's headers, credentials included, and uses `proxies` if the
/// caller has set any.
pub(super) async fn count(
    counters: &Counters,
    facts: &RequestFacts,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
    proxies: Option<ProxyRules>,
    transport: Transport,
) -> Result<u64, CountFailure> {
    let uri = endpoint(facts.dialect, uri).ok_or(CountFailure::NotCountable)?;
    let body = counters.run(headers.clone(), body, tokenize_body).await.ok_or(CountFailure::NotCountable)?;
    let mut request = Request::post(uri).body(body.into()).map_err(|_| CountFailure::NotCountable)?;
    *request.headers_mut() = tokenize_headers(headers);
    if let Some(proxies) = proxies {
        request.extensions_mut().insert(proxies);
    }
    let response = transport.oneshot(request).await.map_err(|_| CountFailure::NoCount)?;
    if !response.status().is_success() {
        return Err(CountFailure::NoCount);
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
        .collect()
        .await
        .map_err(|_| CountFailure::NoCount)?;
    let answer: TokenizeResponse =
        serde_json::from_slice(&body.to_bytes()).map_err(|_| CountFailure::NoCount)?;
    Ok(answer.count)
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
