//! A target's own key, in place of the caller's.

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::wire::Dialect;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Where a request may bear a key, and how it is written there.
const PLACES: [(HeaderName, &str); 4] = [
    (AUTHORIZATION, "Bearer "),
    (X_API_KEY, ""),
    (HeaderName::from_static("api-key"), ""),
    (X_GOOG_API_KEY, ""),
];

/// What belongs to the account of the caller's key, and means nothing to another's.
const OF_THE_ACCOUNT: [HeaderName; 5] = [
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
    HeaderName::from_static("x-goog-user-project"),
    HeaderName::from_static("ocp-apim-subscription-key"),
    COOKIE,
];

/// A key. Has no `Debug` and no `Display`, so that nothing can show it.
pub(super) struct Credential(String);

impl Credential {
    /// `None` for what no header can hold.
    pub(super) fn new(key: &str) -> Option<Self> {
        let key = key.trim();
        (!key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(key.to_owned()))
    }

    /// Puts it wherever the caller's key was; where there was none, where the dialect has it.
    pub(super) fn replace(
        &self,
        headers: &mut HeaderMap,
        query: Option<&str>,
        dialect: Dialect,
    ) -> Option<String> {
        let query = query.filter(|query| query.split('&').any(is_key));
        let mut places: Vec<_> = PLACES.into_iter().filter(|(name, _)| headers.contains_key(name)).collect();
        if places.is_empty() && query.is_none() {
            let name = match dialect {
                Dialect::AnthropicMessages => X_API_KEY,
                Dialect::Gemini => X_GOOG_API_KEY,
                _ => AUTHORIZATION,
            };
            places.extend(PLACES.into_iter().filter(|(known, _)| *known == name));
        }
        for (name, scheme) in places {
            // It was tried when it was read.
            if let Ok(mut value) = HeaderValue::try_from(format!("{scheme}{}", self.0)) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        for name in OF_THE_ACCOUNT {
            headers.remove(name);
        }
        let query = query?.split('&').map(|pair| if is_key(pair) { self.pair() } else { pair.to_owned() });
        Some(query.collect::<Vec<_>>().join("&"))
    }

    fn pair(&self) -> String {
        format!("key={}", utf8_percent_encode(&self.0, NON_ALPHANUMERIC))
    }
}

/// Google's way of sending a key.
fn is_key(pair: &str) -> bool {
    pair.starts_with("key=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(
        headers: &[(&'static str, &'static str)],
        query: Option<&str>,
        dialect: Dialect,
    ) -> (Vec<String>, Option<String>) {
        let mut map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let query = Credential::new(" k/2\n").unwrap().replace(&mut map, query, dialect);
        let mut headers: Vec<_> =
            map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        headers.sort();
        (headers, query)
    }

    #[test]
    fn it_stands_where_the_callers_stood() {
        let chat = Dialect::OpenAiChat;
        for (given, expected) in [
            (("authorization", "Bearer k1"), "authorization: Bearer k/2"),
            (("x-api-key", "k1"), "x-api-key: k/2"),
            (("api-key", "k1"), "api-key: k/2"),
            (("x-goog-api-key", "k1"), "x-goog-api-key: k/2"),
        ] {
            assert_eq!(
                replaced(&[given, ("openai-organization", "o"), ("cookie", "c")], None, chat).0,
                [expected]
            );
        }
        let (headers, query) = replaced(&[], Some("alt=sse&key=k1"), Dialect::Gemini);
        assert_eq!((headers.len(), query.as_deref()), (0, Some("alt=sse&key=k%2F2")));
    }

    #[test]
    fn where_the_caller_had_none_the_dialect_says() {
        for (dialect, expected) in [
            (Dialect::OpenAiResponses, "authorization: Bearer k/2"),
            (Dialect::AnthropicMessages, "x-api-key: k/2"),
            (Dialect::Gemini, "x-goog-api-key: k/2"),
        ] {
            assert_eq!(replaced(&[], Some("alt=sse"), dialect), (vec![expected.to_owned()], None));
        }
    }

    #[test]
    fn what_no_header_can_hold_is_no_key() {
        for key in ["", " \n", "a\nb", "a\u{e9}"] {
            assert!(Credential::new(key).is_none());
        }
    }
}
