//! A secret key read from an environment variable, and the request header that carries it.
//!
//! Used for calls that are sent to a fallback target, and for polling the replicas of a pool.

use http::Uri;
use http::header::{HeaderMap, HeaderValue};

use tidegate_protocol::Dialect;
use tidegate_protocol::api_key::key_header;

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

    /// Sets the header from which the API of `dialect` at `uri` reads its key (see [`key_header`]),
    /// and replaces an existing header of this name.
    pub(crate) fn write(&self, headers: &mut HeaderMap, uri: &Uri, dialect: Dialect) {
        let (name, scheme) = key_header(dialect, uri);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_is_written_as_a_sensitive_header() {
        for (dialect, expected) in [
            (Dialect::OpenAiChat, ("authorization", "Bearer k/2")),
            (Dialect::AnthropicMessages, ("x-api-key", "k/2")),
        ] {
            let (mut headers, uri) = (HeaderMap::new(), "https://spare.example/v1".parse().unwrap());
            Credential::new(" k/2\n").unwrap().write(&mut headers, &uri, dialect);
            let written: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            assert_eq!(written, [expected]);
            assert!(headers.values().all(HeaderValue::is_sensitive));
        }
    }

    #[test]
    fn key_with_characters_that_no_header_allows_is_rejected() {
        for key in ["", " \n", "a\nb", "a\u{e9}"] {
            assert!(Credential::new(key).is_none());
        }
    }
}
