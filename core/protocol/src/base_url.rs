//! Base URLs, and rewriting the URL of a request from one base URL to another.
//!
//! The path below the request's own base URL is appended to the new one. Base URLs are written with
//! a version (`https://host/v1`) or without it (`https://host`). The version in the URL of the
//! request is kept, unless the new base URL has one, which replaces it. Google's OpenAI-compatible
//! APIs have a version and more segments after it (`https://host/v1beta/openai`). Below the base
//! URL of the Gemini API without a path, requests in OpenAI's format are placed below
//! `/v1beta/openai`.
//!
//! # Examples
//!
//! ```
//! use tidegate_protocol::base_url::BaseUrl;
//!
//! let from = BaseUrl::parse("https://api.openai.com/v1").expect("an absolute URL");
//! let to = BaseUrl::parse("http://replica-0:8000").expect("an absolute URL");
//! let request = "https://api.openai.com/v1/chat/completions".parse().expect("a URL");
//! let moved = to.rebase(&request, Some(&from)).expect("a URL");
//! assert_eq!(moved, "http://replica-0:8000/v1/chat/completions");
//! ```

use http::Uri;
use http::uri::PathAndQuery;

use crate::server::same_server;

/// Hosts whose API is below a root path, each with that path. The root path is added to base URLs
/// of these hosts that have no path.
const API_ROOTS: [(&str, &str); 2] = [("api.groq.com", "/openai"), ("api.fireworks.ai", "/inference")];

/// The host of the Gemini API.
const GEMINI: &str = "generativelanguage.googleapis.com";
/// The root path of the OpenAI-compatible API at [`GEMINI`].
const GEMINI_OPENAI_ROOT: &str = "/v1beta/openai";
/// How the paths of OpenAI's API that [`GEMINI`] serves begin, without their version.
const GEMINI_OPENAI_PATHS: [&str; 3] = ["/chat/completions", "/embeddings", "/images/"];

/// A base URL: scheme, host, port and path prefix.
#[derive(Clone, Debug)]
pub struct BaseUrl {
    /// The URL, of which only the scheme and the authority are used.
    server: Uri,
    /// Path without a trailing slash. Empty for the root.
    path: Box<str>,
}

impl BaseUrl {
    /// Parses an absolute URL. Returns `None` for any other text.
    pub fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let path = uri.path().trim_end_matches('/');
        let path = if path.is_empty() { api_root(uri.host()?) } else { path };
        let path = path.into();
        (uri.scheme().is_some() && uri.authority().is_some()).then_some(Self { server: uri, path })
    }

    /// Returns `true` if a request URL is below this base URL: same scheme, host and port, and a
    /// path that starts with the base path. Default ports, the letter case of the host and a final
    /// dot of the host are ignored, as in the configuration of targets.
    pub fn contains(&self, uri: &Uri) -> bool {
        same_server(uri, &self.server) && strip_path_prefix(uri.path(), &self.path).is_some()
    }

    /// Returns the length of the path in bytes. If several base URLs contain a request, the one
    /// with the longest path is the most specific.
    pub fn path_len(&self) -> usize {
        self.path.len()
    }

    /// Returns the URL of a request, rewritten to this base URL. `from` is the base URL that
    /// contains the request. If `from` is `None`, the whole path of the request is appended, except
    /// for the root path of an API such as `/openai` at `api.groq.com`.
    ///
    /// Returns `None` if the result is not a valid URL.
    pub fn rebase(&self, uri: &Uri, from: Option<&BaseUrl>) -> Option<Uri> {
        let prefix = from.map_or_else(|| api_root(uri.host().unwrap_or_default()), |from| &from.path);
        let mut tail = tail(uri.path(), prefix);
        let root = self.root_of(tail);
        if let Some((version, _)) = tail.get(1..).and_then(|tail| tail.split_once('/'))
            && is_version(version)
            && has_version(root)
        {
            tail = tail.get(1 + version.len()..)?;
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path: PathAndQuery = format!("{root}{tail}{query}").parse().ok()?;
        let server = Uri::builder().scheme(self.server.scheme()?.clone());
        server.authority(self.server.authority()?.clone()).path_and_query(path).build().ok()
    }

    /// Returns the path below which the path `tail` of a request is placed.
    fn root_of(&self, tail: &str) -> &str {
        let path = tail.strip_prefix("/v1").unwrap_or(tail);
        let is_openai = GEMINI_OPENAI_PATHS.iter().any(|start| path.starts_with(start));
        let is_gemini =
            self.path.is_empty() && self.server.host().is_some_and(|host| host.eq_ignore_ascii_case(GEMINI));
        if is_gemini && is_openai { GEMINI_OPENAI_ROOT } else { &self.path }
    }
}

/// Returns the path below `prefix`. If the prefix ends with a version, the result starts with that
/// version. Returns the whole path if it does not start with the prefix.
fn tail<'a>(path: &'a str, prefix: &str) -> &'a str {
    let Some(rest) = strip_path_prefix(path, prefix) else { return path };
    let version = last_segment(prefix);
    let from = path.len() - rest.len() - if is_version(version) { version.len() + 1 } else { 0 };
    path.get(from..).unwrap_or(rest)
}

/// Returns the path below `prefix`, or `None` if the path does not start with whole segments of it.
fn strip_path_prefix<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the part of a path after its last slash. Empty for an empty path.
fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns `true` if a path segment starts with `v` and a digit, as `v1` and `v1beta` do.
pub(super) fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns `true` if the paths below a base path begin without a version: the base path ends in a
/// version, or in an OpenAI-compatible API below one, which Google serves at `v1beta/openai` and at
/// `v1/.../endpoints/{endpoint}`.
fn has_version(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    let [last, second] = [segments.next(), segments.next()].map(Option::unwrap_or_default);
    is_version(last) || (last == "openai" || second == "endpoints") && path.split('/').any(is_version)
}

fn api_root(host: &str) -> &'static str {
    API_ROOTS.iter().find(|(known, _)| host.eq_ignore_ascii_case(known)).map_or("", |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::BaseUrl;

    #[test]
    fn path_is_moved_from_one_base_to_the_other() {
        let chat = "chat/completions";
        for (from, url, to, expected) in [
            (
                "http://a/v1",
                format!("http://a/v1/{chat}"),
                "http://b:8000/v1",
                format!("http://b:8000/v1/{chat}"),
            ),
            ("http://a", format!("http://a/v1/{chat}?x=1"), "http://b/v1", format!("http://b/v1/{chat}?x=1")),
            ("http://a/v1", format!("http://a/v1/{chat}"), "http://b", format!("http://b/v1/{chat}")),
            (
                "http://a/one",
                format!("http://a/one/v1/{chat}"),
                "http://b/two",
                format!("http://b/two/v1/{chat}"),
            ),
            ("http://a", format!("http://a/deep/{chat}"), "http://b", format!("http://b/deep/{chat}")),
            (
                "https://api.openai.com",
                format!("https://api.openai.com/v1/{chat}"),
                "https://api.groq.com",
                format!("https://api.groq.com/openai/v1/{chat}"),
            ),
            (
                "https://api.groq.com",
                format!("https://api.groq.com/openai/v1/{chat}"),
                "https://api.openai.com",
                format!("https://api.openai.com/v1/{chat}"),
            ),
            (
                "https://api.groq.com/openai/v1",
                format!("https://api.groq.com/openai/v1/{chat}"),
                "http://vllm:8000",
                format!("http://vllm:8000/v1/{chat}"),
            ),
            (
                "https://east.openai.azure.com",
                format!("https://east.openai.azure.com/openai/deployments/d/{chat}?api-version=1"),
                "https://west.openai.azure.com/",
                format!("https://west.openai.azure.com/openai/deployments/d/{chat}?api-version=1"),
            ),
            (
                "https://g.example",
                "https://g.example/v1beta/models/m:generateContent?alt=sse".to_owned(),
                "http://b/v1",
                "http://b/v1/models/m:generateContent?alt=sse".to_owned(),
            ),
            (
                "https://api.openai.com/v1",
                format!("https://api.openai.com/v1/{chat}"),
                "https://generativelanguage.googleapis.com/v1beta/openai",
                format!("https://generativelanguage.googleapis.com/v1beta/openai/{chat}"),
            ),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai",
                format!("https://generativelanguage.googleapis.com/v1beta/openai/{chat}"),
                "https://api.openai.com/v1",
                format!("https://api.openai.com/v1/{chat}"),
            ),
            (
                "https://api.openai.com",
                format!("https://api.openai.com/v1/{chat}"),
                "https://generativelanguage.googleapis.com",
                format!("https://generativelanguage.googleapis.com/v1beta/openai/{chat}"),
            ),
            (
                "https://api.deepseek.com",
                format!("https://api.deepseek.com/{chat}"),
                "https://generativelanguage.googleapis.com",
                format!("https://generativelanguage.googleapis.com/v1beta/openai/{chat}"),
            ),
            (
                "http://a/v1",
                "http://a/v1/embeddings?x=1".to_owned(),
                "https://generativelanguage.googleapis.com",
                "https://generativelanguage.googleapis.com/v1beta/openai/embeddings?x=1".to_owned(),
            ),
            // Gemini's own format.
            (
                "https://g.example",
                "https://g.example/v1beta/models/m:generateContent".to_owned(),
                "https://generativelanguage.googleapis.com",
                "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent".to_owned(),
            ),
            (
                "https://api.openai.com",
                format!("https://api.openai.com/v1/{chat}"),
                "https://l-aiplatform.googleapis.com/v1/projects/P/locations/L/endpoints/openapi",
                format!(
                    "https://l-aiplatform.googleapis.com/v1/projects/P/locations/L/endpoints/openapi/{chat}"
                ),
            ),
            // The version before an account is that of the gateway.
            (
                "https://api.anthropic.com",
                "https://api.anthropic.com/v1/messages".to_owned(),
                "https://gateway.example/v1/account/anthropic",
                "https://gateway.example/v1/account/anthropic/v1/messages".to_owned(),
            ),
        ] {
            let (from, to) = (BaseUrl::parse(from).unwrap(), BaseUrl::parse(to).unwrap());
            let url = url.parse().unwrap();
            assert!(from.contains(&url), "{url}");
            assert_eq!(to.rebase(&url, Some(&from)).unwrap(), *expected);
        }
    }

    #[test]
    fn whole_path_is_kept_without_a_base() {
        let to = BaseUrl::parse("http://b/v1").unwrap();
        let url = "http://a/v1/completions".parse().unwrap();
        assert_eq!(to.rebase(&url, None).unwrap(), "http://b/v1/completions");
        assert!(!to.contains(&url));
        assert!(BaseUrl::parse("nonsense").is_none());
    }
}
