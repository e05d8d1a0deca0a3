//! A secret key read from an environment variable, and the request header that carries it.
//!
//! Used for calls that are sent to a fallback target, and for polling the replicas of a pool.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, uri};

use tidegate_protocol::Dialect;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// Returns `true` if both URLs have the same scheme, host and port, so that both may receive the
/// same credential. The case of the host is ignored. A missing port is the default of the scheme.
pub(crate) fn same_server(one: &Uri, other: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    one.scheme() == other.scheme() && host(one) == host(other) && port(one) == port(other)
}

/// Returns the port of a URL. Without a port, it is 443 for `https` and 80 for other schemes.
/// `None` if the URL has no scheme either.
fn port(uri: &Uri) -> Option<u16> {
    let default = || uri.scheme().map(|scheme| if *scheme == uri::Scheme::HTTPS { 443 } else { 80 });
    uri.port_u16().or_else(default)
}

/// A secret key. Has neither `Debug` nor `Display`, so that it cannot be printed by mistake.
pub(crate) struct Credential(String);

impl Credential {
    /// Creates a credential from a key, without surrounding white space. Returns `None` if the key
    /// is empty or contains anything but visible ASCII characters.
    pub(crate) fn new(key: &str) -> Option<Self> {
        let key = key.trim();
        (!key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(key.to_owned()))
    }

    /// Reads a credential from the environment variable named `variable`.
    ///
    /// # Errors
    /// Returns text that completes a sentence beginning with the name of the variable: it is not
    /// set, or no header can carry its value. The text never contains the value.
    pub(crate) fn from_env(variable: &str) -> Result<Self, &'static str> {
        let value = std::env::var_os(variable).ok_or("is not set in the environment")?;
        value.to_str().and_then(Self::new).ok_or("has a value that no header can carry")
    }

    /// Returns the value `Bearer KEY` for the header `authorization`. Always `Some`, because
    /// [`Credential::new`] has checked the key.
    pub(crate) fn bearer(&self) -> Option<HeaderValue> {
        self.value("Bearer ")
    }

    /// Sets the header from which APIs of `dialect` read their key, and replaces an existing header
    /// of this name. `uri` is the URL of the request: it distinguishes Azure OpenAI, which reads
    /// `api-key`, from other APIs of the same dialect.
    pub(crate) fn write(&self, headers: &mut HeaderMap, uri: &Uri, dialect: Dialect) {
        let (name, scheme) = match dialect {
            Dialect::AnthropicMessages => (X_API_KEY, ""),
            Dialect::Gemini => (X_GOOG_API_KEY, ""),
            _ if is_azure(uri) => (API_KEY, ""),
            _ => (AUTHORIZATION, "Bearer "),
        };
        if let Some(value) = self.value(scheme) {
            headers.insert(name, value);
        }
    }

    /// Returns `scheme` followed by the key as a header value that is excluded from logs. Always
    /// `Some`, because `new` has checked the key.
    fn value(&self, scheme: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("{scheme}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Returns `true` if the URL is one of Azure OpenAI: by its host, or by the path
/// `/openai/deployments/` if another host forwards to it.
fn is_azure(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    host == "openai.azure.com"
        || host.ends_with(".openai.azure.com")
        || uri.path().contains("/openai/deployments/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "https://spare.example/v1/chat/completions";

    #[test]
    fn credential_is_written_to_the_header_that_the_provider_reads() {
        let (chat, azure) = (Dialect::OpenAiChat, "https://e.OpenAI.Azure.com/openai/v1/chat/completions");
        for (uri, dialect, expected) in [
            (BARE, chat, ("authorization", "Bearer k/2")),
            (BARE, Dialect::OpenAiResponses, ("authorization", "Bearer k/2")),
            (BARE, Dialect::Other, ("authorization", "Bearer k/2")),
            (BARE, Dialect::AnthropicMessages, ("x-api-key", "k/2")),
            (BARE, Dialect::Gemini, ("x-goog-api-key", "k/2")),
            (azure, chat, ("api-key", "k/2")),
            ("https://apim.example/x/openai/deployments/d/chat/completions", chat, ("api-key", "k/2")),
            (
                "https://notopenai.azure.com.example/openai/v1/chat/completions",
                chat,
                ("authorization", "Bearer k/2"),
            ),
        ] {
            let mut headers = HeaderMap::new();
            Credential::new(" k/2\n").unwrap().write(&mut headers, &uri.parse().unwrap(), dialect);
            let written: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            assert_eq!(written, [expected], "{uri}");
            assert!(headers.values().all(HeaderValue::is_sensitive));
        }
    }

    #[test]
    fn server_is_identified_by_protocol_host_and_port() {
        for (one, other, same) in [
            ("https://a/v1", "https://A:443/v2", true),
            ("http://a", "http://a:80", true),
            ("http://u:p@a", "http://a", true),
            ("https://a", "http://a", false),
            ("https://a", "http://a:443", false),
            ("http://a:1", "http://a:2", false),
            ("http://a", "http://b.a", false),
        ] {
            assert_eq!(same_server(&one.parse().unwrap(), &other.parse().unwrap()), same, "{one} {other}");
        }
    }

    #[test]
    fn key_with_characters_that_no_header_allows_is_rejected() {
        for key in ["", " \n", "a\nb", "a\u{e9}"] {
            assert!(Credential::new(key).is_none());
        }
    }
}
