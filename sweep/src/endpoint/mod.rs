//! The endpoint that calls are sent to: its URL, its API and its key.

pub(crate) mod key_variables;
mod requests;

use http::uri::Authority;
use http::{HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize};
use tidegate::protocol::{Dialect, api_key};

pub(crate) use self::requests::OutputLimitKey;
use crate::error::SweepError;

/// The APIs that a sweep can call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// OpenAI's chat completions, also offered by most other servers. The default.
    #[default]
    Chat,
    /// OpenAI's legacy completions.
    Completions,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's Messages API.
    Messages,
}

impl Api {
    /// Returns the name of the API in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Completions => "completions",
            Api::Responses => "responses",
            Api::Messages => "messages",
        }
    }

    /// Returns the path with which every endpoint URL of this API ends, such as
    /// `/chat/completions`.
    fn path(self) -> &'static str {
        match self {
            Api::Chat => "/chat/completions",
            Api::Completions => "/completions",
            Api::Responses => "/responses",
            Api::Messages => "/messages",
        }
    }

    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Api::Chat => Dialect::OpenAiChat,
            Api::Completions => Dialect::OpenAiCompletions,
            Api::Responses => Dialect::OpenAiResponses,
            Api::Messages => Dialect::AnthropicMessages,
        }
    }

    /// Returns the API whose endpoint path is the end of `path`, or `None` if `path` is only a base
    /// path.
    fn from_path(path: &str) -> Option<Self> {
        // Chat completions first, because their path also ends like that of completions.
        [Api::Chat, Api::Completions, Api::Responses, Api::Messages]
            .into_iter()
            .find(|api| path.ends_with(api.path()))
    }
}

/// URL, API and key of the endpoint that calls are sent to. `Debug` does not show the key.
#[derive(Clone)]
pub struct Endpoint {
    uri: Uri,
    api: Api,
    key: Option<HeaderValue>,
}

impl Endpoint {
    /// Returns the endpoint at `url`: either the URL of the endpoint itself
    /// (`https://api.openai.com/v1/chat/completions`), or a base URL (`https://api.openai.com/v1`,
    /// `http://localhost:8000`).
    ///
    /// A base URL is extended by the path of `api`, and by `/v1` if it has no path. If `api` is
    /// `None`, the URL determines the API: an endpoint's path names it, `api.anthropic.com` means
    /// Messages, and any other base URL means chat completions.
    ///
    /// # Errors
    ///
    /// Returns `SweepError::Options` if the text is not an absolute `http` or `https` URL, contains
    /// a user or password, or is an endpoint of another API than `api`.
    pub fn new(url: &str, api: Option<Api>) -> Result<Self, SweepError> {
        let invalid = |problem: &str| SweepError::options(format!("--url {}: {problem}", redacted_url(url)));
        let uri: Uri =
            url.parse().map_err(|_| invalid("is not a URL; an example is http://localhost:8000/v1"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid("must be absolute; an example is http://localhost:8000/v1"));
        };
        if !matches!(scheme, "http" | "https") {
            return Err(invalid("must start with http:// or https://"));
        }
        if !has_valid_port(authority) {
            return Err(invalid("has a port that is not a number; an example is http://localhost:8000/v1"));
        }
        if authority.as_str().contains('@') {
            return Err(invalid("contains a user or password, which would be stored; use --key-env"));
        }
        let path = uri.path().trim_end_matches('/');
        let url_api = Api::from_path(path);
        let api = match (url_api, api) {
            (Some(url_api), Some(api)) if url_api != api => {
                return Err(invalid(&format!(
                    "is an endpoint for {}, not for {}",
                    url_api.as_str(),
                    api.as_str()
                )));
            }
            (url_api, api) => url_api.or(api).unwrap_or(match authority.host() {
                "api.anthropic.com" => Api::Messages,
                _ => Api::Chat,
            }),
        };
        let path = match (path, url_api) {
            (whole, Some(_)) => whole.to_owned(),
            ("", None) => format!("/v1{}", api.path()),
            (base, None) => format!("{base}{}", api.path()),
        };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let uri = format!("{scheme}://{authority}{path}{query}");
        Ok(Self { uri: uri.parse().map_err(|_| invalid("is not a URL"))?, api, key: None })
    }

    /// Sets the API key. Requests carry it in the header that the provider expects:
    /// `authorization`, `x-api-key` or `api-key`.
    ///
    /// # Errors
    ///
    /// Returns `Options` if the key contains characters that are invalid in a header.
    pub fn with_key(mut self, key: &str) -> Result<Self, SweepError> {
        let (_, scheme) = self.key_header();
        let mut value = HeaderValue::try_from(format!("{scheme}{}", key.trim())).map_err(|_| {
            SweepError::options(
                "the API key contains characters that are invalid in a header; check that it is complete and not quoted",
            )
        })?;
        value.set_sensitive(true);
        self.key = Some(value);
        Ok(self)
    }

    /// Returns the environment variable in which the provider's SDK expects the key, such as
    /// `OPENAI_API_KEY`, or `None` for unknown hosts.
    pub fn usual_key_env(&self) -> Option<&'static str> {
        key_variables::key_env(self.uri.host().unwrap_or_default())
    }

    /// Returns the API of the endpoint.
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns the URL of the endpoint, without its query.
    pub fn url(&self) -> String {
        self.with_path(self.uri.path())
    }

    /// Returns the base URL of the endpoint, without the path of the API and without query.
    pub fn base(&self) -> String {
        let path = self.uri.path();
        self.with_path(path.strip_suffix(self.api.path()).unwrap_or(path))
    }

    fn with_path(&self, path: &str) -> String {
        let (scheme, authority) = (self.uri.scheme_str(), self.uri.authority());
        format!(
            "{}://{}{path}",
            scheme.unwrap_or("http"),
            authority.map_or("", |authority| authority.as_str())
        )
    }

    /// Returns the host of the URL, with `:PORT` if the URL has a port.
    pub fn host(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    /// Returns the header that carries the key, and the text before the key in its value.
    fn key_header(&self) -> (HeaderName, &'static str) {
        api_key::key_header(self.api.dialect(), &self.uri)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.url()).field("api", &self.api).finish_non_exhaustive()
    }
}

/// Returns `url` without a user, password and query, for messages. Of a text that is not a URL,
/// everything up to the last `@` may be a password.
pub fn redacted_url(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    if let Ok(parsed) = url.parse::<Uri>()
        && let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority())
        && has_valid_port(authority)
    {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let path = url.strip_prefix(&format!("{scheme}://{authority}")).unwrap_or_default();
        return format!("{scheme}://{host}{path}");
    }
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (None, Some((_, rest))) => rest.to_owned(),
        (_, None) => url.to_owned(),
    }
}

/// Returns `true` if `authority` has no port or a numeric one. [`Uri`] also accepts `user:secret`,
/// the start of a user and a password that contains `/`.
fn has_valid_port(authority: &Authority) -> bool {
    let host_and_port = authority.as_str().rsplit('@').next();
    host_and_port == Some(authority.host()) || authority.port_u16().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_urls_keep_the_host_and_the_path() {
        for (url, shown) in [
            ("https://me:secret@h:1/v1?key=x", "https://h:1/v1"),
            ("https://h/users/a@b.example/v1", "https://h/users/a@b.example/v1"),
            ("https://h", "https://h"),
            ("https://[::1]:8000/v1", "https://[::1]:8000/v1"),
            ("https://me:sec/ret@h/v1", "https://h/v1"),
            ("me:secret@h", "h"),
        ] {
            assert_eq!(redacted_url(url), shown);
        }
    }

    #[test]
    fn base_urls_and_endpoint_urls_are_equivalent() {
        for (url, api, whole, base, kind) in [
            ("http://h:1", None, "http://h:1/v1/chat/completions", "http://h:1/v1", Api::Chat),
            ("http://h:1/v1/", None, "http://h:1/v1/chat/completions", "http://h:1/v1", Api::Chat),
            (
                "https://h/openai/v1",
                Some(Api::Responses),
                "https://h/openai/v1/responses",
                "https://h/openai/v1",
                Api::Responses,
            ),
            ("https://h/v1/completions", None, "https://h/v1/completions", "https://h/v1", Api::Completions),
            (
                "https://h/v1/chat/completions",
                None,
                "https://h/v1/chat/completions",
                "https://h/v1",
                Api::Chat,
            ),
            (
                "https://api.anthropic.com",
                None,
                "https://api.anthropic.com/v1/messages",
                "https://api.anthropic.com/v1",
                Api::Messages,
            ),
        ] {
            let endpoint = Endpoint::new(url, api).unwrap();
            assert_eq!(
                (endpoint.url().as_str(), endpoint.base().as_str(), endpoint.api()),
                (whole, base, kind)
            );
        }
    }

    #[test]
    fn invalid_url_error_hides_the_password() {
        for url in ["h", "ftp://h", "http://me:secret@h/v1", "http://me:secr/et@h/v1", "http://"] {
            let text = Endpoint::new(url, None).unwrap_err().to_string();
            assert!(text.contains("--url") && !text.contains("secr"), "{text}");
        }
        assert!(Endpoint::new("http://h/v1/messages", Some(Api::Chat)).is_err());
    }

    #[test]
    fn debug_output_hides_the_key() {
        let endpoint =
            Endpoint::new("https://api.openai.com/v1?a=b", None).unwrap().with_key("sk-secret").unwrap();
        assert_eq!(endpoint.usual_key_env(), Some("OPENAI_API_KEY"));
        assert!(!format!("{endpoint:?}").contains("secret") && !endpoint.url().contains("a=b"));
        assert!(endpoint.clone().with_key("two\nlines").is_err());
    }
}
