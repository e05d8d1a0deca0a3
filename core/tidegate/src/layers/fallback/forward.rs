//! Selects the headers and query parameters that a fallback may send to another server or with
//! another credential.
//!
//! An allowlist, because a list of every name under which gateways take credentials is never
//! complete. The names on it are those that a provider needs in order to read the request, and
//! those by which an SDK describes itself. None of them is a credential, an account or data of the
//! user. The target that receives the request may name further headers (`forward_headers`).
//!
//! Deliberately not on the list:
//!
//! - `openai-organization`, `openai-project`, `x-goog-user-project`, `anthropic-workspace-id`:
//!   accounts of the first provider.
//! - `cookie`, `referer`, `origin`, `http-referer`, `x-title`: they belong to the site that the
//!   request was for.
//! - `tracestate` and `baggage`: tracing vendors and applications put user ids there. `traceparent`
//!   holds random ids alone, and keeps the trace in one piece.
//! - Hop-by-hop headers and `host`, which the connection writes itself.
//! - Query parameters other than [`QUERY`]. They cannot be named, because the APIs that fallbacks
//!   speak need no other.

use http::HeaderMap;
use http::header::HeaderName;
use percent_encoding::percent_decode_str;

/// Headers that every request keeps, beside those that begin with [`SDK_PREFIX`].
const HEADERS: [&str; 18] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "content-encoding",
    "content-length",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "traceparent",
    "user-agent",
    "x-client-request-id",
    "x-goog-api-client",
    "x-ms-client-request-id",
    "x-ms-useragent",
    "x-request-id",
    // How long google-genai lets the server take.
    "x-server-timeout",
];

/// How the SDKs of OpenAI, Anthropic and others describe their version, platform, timeout and
/// retries.
const SDK_PREFIX: &str = "x-stainless-";

/// Query parameters that every request keeps: Azure's API version, Gemini's format of streams, and
/// Anthropic's beta switch.
const QUERY: [&str; 3] = ["api-version", "alt", "beta"];

/// Removes every header that is neither on the list nor one of `named`.
pub(super) fn retain_headers(headers: &mut HeaderMap, named: &[HeaderName]) {
    let removed: Vec<HeaderName> =
        headers.keys().filter(|name| !is_kept(name) && !named.contains(name)).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

/// Returns `true` if a header is on the list.
fn is_kept(name: &HeaderName) -> bool {
    HEADERS.contains(&name.as_str()) || name.as_str().starts_with(SDK_PREFIX)
}

/// Returns the parameters of the query that are on the list, in their order and byte for byte;
/// empty if there are none.
pub(super) fn retain_query(query: &str) -> String {
    query.split('&').filter(|pair| is_kept_parameter(pair)).collect::<Vec<_>>().join("&")
}

/// Returns `true` if the name of a query parameter is on the list, after percent-decoding.
fn is_kept_parameter(pair: &str) -> bool {
    let name = percent_decode_str(pair.split('=').next().unwrap_or_default()).decode_utf8_lossy();
    QUERY.contains(&&*name)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_listed_and_named_headers_stay() {
        let mut headers = HeaderMap::new();
        for name in ["Content-Type", "X-Stainless-Lang", "x-mine", "x-theirs", "authorization", "host"] {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("2"));
        }
        retain_headers(&mut headers, &[HeaderName::from_static("x-mine")]);
        let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "x-stainless-lang", "x-mine"]);
        assert_eq!(headers.len(), 6, "each with all of its values");
    }

    #[test]
    fn only_listed_query_parameters_stay() {
        for (query, expected) in [
            ("alt=sse&key=k1&x=%20", "alt=sse"),
            ("key=k1", ""),
            ("k%65y=k1&api%2Dversion=1", "api%2Dversion=1"),
            ("beta&&access_token=k2&beta=true", "beta&beta=true"),
            ("Beta=1&betas=2&x=alt=3", ""),
            ("", ""),
        ] {
            assert_eq!(retain_query(query), expected, "{query}");
        }
    }
}
