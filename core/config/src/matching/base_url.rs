//! Parses the base URLs of targets, and compares the URLs of requests with them.

use std::fmt;
use std::ops::Deref;

use http::Uri;

use tidegate_protocol::server::{self, default_port};
use tidegate_protocol::url_check;

/// A base URL: scheme, host, port, and the first segments of the path.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl<S = Box<str>> {
    /// Whether the scheme is `https`. Otherwise it is `http`.
    https: bool,
    /// The host, without a final dot, and with brackets around an IPv6 address. It is in lower
    /// case, except in the URL of a request.
    host: S,
    port: u16,
    /// The path. A base URL has no final slash, and an empty path at the root. The path of a
    /// request URL is unchanged.
    path: S,
}

/// The URL of a request, split into the same parts as a base URL but not normalized.
pub(super) type RequestUrl<'a> = BaseUrl<&'a str>;

impl<'a> RequestUrl<'a> {
    /// Splits a URI into its parts. Returns `None` if it is not an absolute http or https URL.
    pub(super) fn from_uri(uri: &'a Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?;
        let https = scheme.eq_ignore_ascii_case("https");
        if !https && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let host = uri.host()?;
        let host = server::without_final_dot(host);
        Some(Self { https, host, port: uri.port_u16().unwrap_or(default_port(https)), path: uri.path() })
    }
}

impl BaseUrl {
    /// Parses a base URL.
    ///
    /// # Errors
    /// Returns the reason why `url` is not a valid base URL. The text does not repeat the URL,
    /// which may contain a password or a key.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let problems = [
            // This check is the first, so that a URL with a password always gets this error.
            (
                authority.contains('@'),
                "a URL cannot hold a user name or password; send credentials as headers",
            ),
            (url.contains(['?', '#']), "a base URL cannot have a query or fragment; remove it"),
            (url.contains('*'), "a base URL cannot hold *, because it matches every path below it"),
            (scheme.is_none(), "start it with https:// or http://"),
            (!matches!(scheme.as_deref(), Some("https" | "http")), "the scheme must be https or http"),
            (authority.is_empty(), "the host is missing"),
        ];
        if let Some((_, why)) = problems.into_iter().find(|(is_found, _)| *is_found) {
            return Err(why);
        }
        let uri: Uri = url.parse().map_err(|_| "it is not a valid URL")?;
        let url = RequestUrl::from_uri(&uri).ok_or("it is not a valid URL")?;
        if url.host.is_empty() {
            return Err("the host is missing");
        }
        // The parser ignores text after the host that is not a valid port.
        let bare = uri.host() == Some(authority);
        if !bare && uri.port_u16().is_none_or(|port| port == 0) {
            return Err("the port must be a number from 1 to 65535");
        }
        // Calls to a path that the transport would normalize are never sent.
        url_check::check_unchanged(&uri)?;
        Ok(Self {
            https: url.https,
            host: url.host.to_ascii_lowercase().into(),
            port: url.port,
            path: url.path.trim_end_matches('/').into(),
        })
    }

    /// Returns `true` if `url` equals this URL or is below it. If `url` is itself a base URL,
    /// `true` means that this URL covers every URL below `url`, too.
    pub(super) fn matches<S: Deref<Target = str>>(&self, url: &BaseUrl<S>) -> bool {
        // Fast path: most clients write the host in lower case.
        self.https == url.https
            && self.port == url.port
            && (*self.host == *url.host || self.host.eq_ignore_ascii_case(&url.host))
            && url.path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Prints the normal form. Base URLs that match the same requests have the same normal form.
impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port != default_port(self.https) {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}
