//! The address of a proxy, parsed from the value of an environment variable.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::Error;

/// The address of a proxy, and the credentials to send to it. `Debug` does not show the
/// credentials.
///
/// ```
/// use tidegate::transport::proxy::ProxyServer;
///
/// let proxy = ProxyServer::from_httpx("HTTPS_PROXY", "http://user:secret@proxy:3128")?;
/// assert_eq!(proxy.url(), "http://proxy:3128");
/// assert_eq!(proxy.credentials(), Some(("user", "secret")));
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ProxyServer {
    url: String,
    credentials: Option<(String, String)>,
}

/// The syntax of the proxy variables: that of an HTTP client, or that of the table for Rust.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Httpx,
    Undici,
    Rust,
}

impl Dialect {
    /// Returns the scheme of [`ProxyServer::url`] if the URL in the variable has the scheme
    /// `given`. `None` if the dialect does not support that scheme.
    fn scheme(self, given: &str) -> Option<&'static str> {
        match (given, self) {
            ("http", _) => Some("http"),
            ("https", _) => Some("https"),
            ("socks5", Self::Rust) => Some("socks5"),
            ("socks5", _) | ("socks5h", Self::Httpx | Self::Rust) | ("socks", Self::Undici) => {
                Some("socks5h")
            }
            _ => None,
        }
    }

    /// Returns the supported schemes as text, for error messages.
    fn expected(self) -> &'static str {
        match self {
            Self::Undici => "http://, https://, socks5:// or socks://",
            Self::Httpx | Self::Rust => "http://, https://, socks5:// or socks5h://",
        }
    }
}

impl ProxyServer {
    /// Creates a proxy from `value`, the value of the environment variable named `variable`, by the
    /// syntax of httpx.
    ///
    /// # Errors
    /// `Config` if `value` is not the URL of a supported proxy. The message names the variable, and
    /// contains nothing of its value, which may be a credential.
    pub fn from_httpx(variable: &str, value: &str) -> Result<Self, Error> {
        Self::parse(variable, value, Dialect::Httpx)
    }

    /// Creates a proxy from `value`, the value of the environment variable named `variable`, by the
    /// syntax of `dialect`.
    ///
    /// # Errors
    /// As for [`ProxyServer::from_httpx`].
    pub(super) fn parse(variable: &str, value: &str, dialect: Dialect) -> Result<Self, Error> {
        let parsed = if value.contains("://") || dialect == Dialect::Undici {
            Url::parse(value)
        } else {
            Url::parse(&format!("http://{value}"))
        };
        // `Url` ignores white space around a URL, as undici does. httpx does not.
        let is_padded = dialect == Dialect::Httpx && value.trim() != value;
        let parts = parsed.ok().filter(|_| !is_padded).and_then(|url| Self::from_url(&url, dialect));
        parts.ok_or_else(|| {
            Error::config(format!(
                "the environment variable {variable} is not the URL of a supported proxy: give a host after {}, \
                 unset it, or set transport.proxy_from_env = false",
                dialect.expected()
            ))
        })
    }

    /// Creates a proxy from the URL in a variable. Returns `None` if the dialect does not support
    /// the scheme or the URL has no host. For undici, also returns `None` if the URL of an HTTP
    /// proxy has a path, query or fragment.
    fn from_url(url: &Url, dialect: Dialect) -> Option<Self> {
        let scheme = dialect.scheme(url.scheme())?;
        let is_origin = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        if dialect == Dialect::Undici && !is_origin && !scheme.starts_with("socks") {
            return None;
        }
        let host = url.host_str().filter(|host| !host.is_empty())?;
        let address = match url.port() {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        };
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let given = match dialect {
            Dialect::Undici => !user.is_empty() && !password.is_empty(),
            Dialect::Httpx | Dialect::Rust => !user.is_empty() || !password.is_empty(),
        };
        Some(Self { url: address, credentials: given.then_some((user, password)) })
    }

    /// Returns the address as `scheme://host[:port]`, without credentials. The scheme is `http`,
    /// `https`, `socks5` (names are resolved by this process) or `socks5h` (names are resolved by
    /// the proxy).
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the user name and the password, percent-decoded; one of them may be empty. `None` if
    /// the variable contains no credentials or, by the syntax of undici, only one of the two.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        self.credentials.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
