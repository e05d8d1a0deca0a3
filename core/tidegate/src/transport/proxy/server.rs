//! The address of a proxy, parsed from the value of an environment variable.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::Error;

/// A proxy: its address, and the credentials that it receives. `Debug` shows no credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ProxyServer {
    url: String,
    credentials: Option<(String, String)>,
}

/// The client whose rules apply to a proxy variable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Httpx,
    Undici,
    Rust,
}

impl Dialect {
    /// Returns the scheme for [`ProxyServer::url`], or `None` if the dialect does not support
    /// `given`.
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

    /// Returns the supported schemes, for error messages.
    fn expected(self) -> &'static str {
        match self {
            Self::Undici => "http://, https://, socks5:// or socks://",
            Self::Httpx | Self::Rust => "http://, https://, socks5:// or socks5h://",
        }
    }
}

impl ProxyServer {
    /// Parses the value of a proxy variable as httpx does.
    ///
    /// # Errors
    /// `Config` if this is no URL of a proxy. The message names `variable`, and quotes nothing of
    /// `value`.
    pub fn from_httpx(variable: &str, value: &str) -> Result<Self, Error> {
        Self::parse(variable, value, Dialect::Httpx)
    }

    /// Parses the value of a proxy variable. The error quotes nothing of it, because any part may
    /// be a credential.
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

    /// Returns the proxy at a URL, or `None` if the dialect does not accept the URL.
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

    /// Returns the user name and the password, decoded, if there are any.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        self.credentials.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
