//! Builds the URL of a request.

use http::Uri;
use http::uri::PathAndQuery;

/// Returns the URL of a request. `path` starts with `/v1/`, which is omitted if the base URL has a
/// path, because that path then contains the version. Keeps the query of the base URL.
///
/// Returns `None` if the base URL has no scheme or no host.
pub(crate) fn request_url(base: &Uri, path: &str) -> Option<Uri> {
    let (scheme, authority) = (base.scheme()?.clone(), base.authority()?.clone());
    let prefix = base.path().trim_end_matches('/');
    let path_below = if prefix.is_empty() { path } else { path.strip_prefix("/v1").unwrap_or(path) };
    let query = base.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path: PathAndQuery = format!("{prefix}{path_below}{query}").parse().ok()?;
    Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_or_adds_the_version() {
        for (base, expected) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions"),
            ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1/chat/completions"),
            ("https://g.example/v1beta/openai", "https://g.example/v1beta/openai/chat/completions"),
            (
                "https://a.example/openai/deployments/d?api-version=1",
                "https://a.example/openai/deployments/d/chat/completions?api-version=1",
            ),
        ] {
            assert_eq!(request_url(&base.parse().unwrap(), "/v1/chat/completions").unwrap(), expected);
        }
        assert_eq!(request_url(&"/v1".parse().unwrap(), "/v1/completions"), None);
    }
}
