//! Base URLs.

use std::fmt;
use std::ops::Deref;

use http::Uri;

use tidegate_protocol::url;

/// A base URL: scheme, host, port, and the path that others start with.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl<S = Box<str>> {
    https: bool,
    /// Without a final dot; an IPv6 address in its brackets. Lower case, except of a request.
    host: S,
    port: u16,
    /// Without a final slash, except of a request: empty for the root.
    path: S,
}

/// The URL of a request.
pub(super) type RequestUrl<'a> = BaseUrl<&'a str>;

impl<'a> RequestUrl<'a> {
    /// Splits a URI. Returns `None` if it is not an absolute http or https URL.
    pub(super) fn from_uri(uri: &'a Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?;
        let https = scheme.eq_ignore_ascii_case("https");
        if !https && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let host = uri.host()?;
        let host = host.strip_suffix('.').unwrap_or(host);
        Some(Self { https, host, port: uri.port_u16().unwrap_or(default_port(https)), path: uri.path() })
    }
}

impl BaseUrl {
    /// Parses a base URL.
    ///
    /// # Errors
    /// What is wrong, without the URL, which may hold a password or a key.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        // Checked first, because no other error may be shown for such a URL.
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("a URL cannot hold a user name or password; send credentials as headers");
        }
        if url.contains(['?', '#']) {
            return Err("a base URL cannot have a query or fragment; remove it");
        }
        if url.contains('*') {
            return Err("a base URL cannot hold *, because it matches every path below it");
        }
        let Some((scheme, _)) = url.split_once("://") else {
            return Err("start it with https:// or http://");
        };
        if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
            return Err("the scheme must be https or http");
        }
        if authority.is_empty() {
            return Err("the host is missing");
        }
        let uri: Uri = url.parse().map_err(|_| "it is not a valid URL")?;
        let url = RequestUrl::from_uri(&uri).ok_or("it is not a valid URL")?;
        if url.host.is_empty() {
            return Err("the host is missing");
        }
        // Text after the host that is not a valid port is not parsed as one.
        let bare = uri.host() == Some(authority);
        if !bare && uri.port_u16().is_none_or(|port| port == 0) {
            return Err("the port must be a number from 1 to 65535");
        }
        // No call is sent to a path that the transport would change.
        url::check_unchanged(&uri)?;
        Ok(Self {
            https: url.https,
            host: url.host.to_ascii_lowercase().into(),
            port: url.port,
            path: url.path.trim_end_matches('/').into(),
        })
    }

    /// Returns `true` if a URL is this one or below it, or if every URL below another base URL is.
    pub(super) fn matches<S: Deref<Target = str>>(&self, url: &BaseUrl<S>) -> bool {
        // Fast path: most clients write the host in lower case.
        self.https == url.https
            && self.port == url.port
            && (*self.host == *url.host || self.host.eq_ignore_ascii_case(&url.host))
            && url.path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn default_port(https: bool) -> u16 {
    if https { 443 } else { 80 }
}

/// Prints the normal form: base URLs that match the same requests print the same.
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
