//! The header that carries the caller's key, by API.

use http::Uri;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::request::Dialect;
use crate::server::without_final_dot;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// The header that Anthropic's API requires besides the key, with the version of the API.
pub const ANTHROPIC_VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// Returns the header from which an API of `dialect` reads its key, and the text before the key in
/// the value of the header. `uri` is the URL of the request: it distinguishes Azure OpenAI, which
/// reads `api-key`, from other APIs of the same dialect.
pub fn key_header(dialect: Dialect, uri: &Uri) -> (HeaderName, &'static str) {
    match dialect {
        Dialect::AnthropicMessages => (X_API_KEY, ""),
        Dialect::Gemini => (X_GOOG_API_KEY, ""),
        _ if is_azure(uri) => (API_KEY, ""),
        _ => (AUTHORIZATION, "Bearer "),
    }
}

/// Returns `true` if the URL is one of Azure OpenAI: by its host, or by the path
/// `/openai/deployments/` if another host forwards to it.
fn is_azure(uri: &Uri) -> bool {
    let host = without_final_dot(uri.host().unwrap_or_default()).to_ascii_lowercase();
    host == "openai.azure.com"
        || host.ends_with(".openai.azure.com")
        || uri.path().contains("/openai/deployments/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_header_follows_from_the_dialect_and_the_url() {
        let bare = "https://spare.example/v1/chat/completions";
        let (chat, azure) = (Dialect::OpenAiChat, "https://e.OpenAI.Azure.com/openai/v1/chat/completions");
        let bearer = ("authorization", "Bearer ");
        for (uri, dialect, expected) in [
            (bare, chat, bearer),
            (bare, Dialect::OpenAiResponses, bearer),
            (bare, Dialect::Other, bearer),
            (bare, Dialect::AnthropicMessages, ("x-api-key", "")),
            (bare, Dialect::Gemini, ("x-goog-api-key", "")),
            (azure, chat, ("api-key", "")),
            ("https://e.openai.azure.com./openai/v1/chat/completions", chat, ("api-key", "")),
            ("https://apim.example/x/openai/deployments/d/chat/completions", chat, ("api-key", "")),
            ("https://notopenai.azure.com.example/openai/v1/chat/completions", chat, bearer),
        ] {
            let (name, scheme) = key_header(dialect, &uri.parse().unwrap());
            assert_eq!((name.as_str(), scheme), expected, "{uri}");
        }
    }
}
