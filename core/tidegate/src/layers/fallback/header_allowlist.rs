//! The allowlist of the headers and query parameters that a fallback may send to another server, or
//! with another credential.
//!
//! This is an allowlist because no list of the names under which gateways accept credentials is
//! complete. It has the names that a provider needs to read the request, and the names by which an
//! SDK describes itself. None of them is a credential, an account or data of the user. A target can
//! receive further headers (`forward_headers`).
//!
//! The list deliberately omits:
//!
//! - `openai-organization`, `openai-project`, `x-goog-user-project` and `anthropic-workspace-id`:
//!   accounts at the first provider.
//! - `cookie`, `referer`, `origin`, `http-referer` and `x-title`: they concern the site that the
//!   request was addressed to.
//! - `tracestate` and `baggage`: tracing vendors and applications put user ids into them.
//!   `traceparent` has only random ids, and is sent so that the trace stays connected.
//! - Hop-by-hop headers and `host`, which the connection sets itself.
//! - Query parameters other than [`QUERY`]. No setting adds any, because the APIs that fallbacks
//!   serve need no others.

use http::HeaderMap;
use http::header::HeaderName;
use percent_encoding::percent_decode_str;

/// Headers that a fallback may send to another server, in addition to those that begin with
/// [`SDK_PREFIX`].
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

/// Prefix of the headers in which the SDKs of OpenAI, Anthropic and others state their version,
/// platform, timeout and number of retries.
const SDK_PREFIX: &str = "x-stainless-";

/// Query parameters that a fallback may send to another server: Azure's API version, Gemini's
/// stream format, and Anthropic's beta switch.
const QUERY: [&str; 3] = ["api-version", "alt", "beta"];

/// Removes each header that is neither on the allowlist nor in `named`, the headers that the target
/// sets in `forward_headers`.
pub(super) fn retain_headers(headers: &mut HeaderMap, named: &[HeaderName]) {
    let removed: Vec<HeaderName> =
        headers.keys().filter(|name| !is_kept(name) && !named.contains(name)).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

/// Returns `true` if a header is on the allowlist.
fn is_kept(name: &HeaderName) -> bool {
    HEADERS.contains(&name.as_str()) || name.as_str().starts_with(SDK_PREFIX)
}

/// Returns the query with only the parameters on the allowlist, in order and byte for byte. The
/// result is empty if no parameter is on the allowlist.
pub(super) fn retain_query(query: &str) -> String {
    query.split('&').filter(|pair| is_kept_parameter(pair)).collect::<Vec<_>>().join("&")
}

/// Returns `true` if the percent-decoded name of a query parameter is on the allowlist. `pair` has
/// the form `name=value` or `name`.
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
