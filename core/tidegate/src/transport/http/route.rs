//! The route of a request: where its connection leads to, and through which proxy.

use http::header::HeaderValue;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Uri, header};
use tidegate_protocol::server::default_port;
use tidegate_protocol::url_check;
use url::Url;

use super::super::proxy::ProxyServer;
use super::errors;
use crate::error::{Error, ErrorKind};
use crate::framing;

/// The route of a request. Requests with equal routes share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    /// Whether the server of the URL is spoken to over TLS.
    pub(super) is_tls: bool,
    /// The host and the port as in the URL, without a user name.
    pub(super) authority: Authority,
    /// The proxy between. `None` means a direct connection.
    pub(super) proxy: Option<ProxyServer>,
}

impl Route {
    /// Returns the route of a URL through `proxy`, or directly if that is `None`.
    ///
    /// # Errors
    /// `Request` if the URL has no host, or a scheme other than `http` and `https`.
    pub(super) fn new(url: &Uri, proxy: Option<ProxyServer>) -> Result<Self, Error> {
        let invalid = |why: &str| Error::new(ErrorKind::Request, why);
        let authority =
            url.authority().ok_or_else(|| invalid("the URL names no host: give an absolute one"))?;
        let is_tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("the URL's scheme is not supported: write http:// or https://")),
        };
        let authority = match authority.as_str().rsplit_once('@') {
            None => authority.clone(),
            Some((_, host)) => host.parse().map_err(|_| invalid("the URL names no host"))?,
        };
        Ok(Self { is_tls, authority, proxy })
    }

    /// Returns the host without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        let host = self.authority.host();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the port to connect to.
    ///
    /// # Errors
    /// `Connect` if the port of the URL is above 65,535. As in other clients, this is a failure to
    /// connect and not a malformed request.
    pub(super) fn port(&self) -> Result<u16, Error> {
        let written = self.authority.as_str().get(self.authority.host().len()..).unwrap_or_default();
        match (self.authority.port_u16(), written) {
            (Some(port), _) => Ok(port),
            (None, "" | ":") => Ok(default_port(self.is_tls)),
            (None, _) => Err(Error::new(ErrorKind::Connect, "cannot connect: invalid port number")),
        }
    }

    /// Checks that a connection leads to the host that the URL names.
    ///
    /// # Errors
    /// `Request` if the host is an address in an unusual form, such as `127.1`: targets are matched
    /// by the text of a host. `Connect` as for [`port`](Self::port).
    pub(super) fn check(&self) -> Result<(), Error> {
        self.port()?;
        let url = Uri::builder().scheme("http").authority(self.authority.clone()).path_and_query("/");
        let url = url.build().map_err(|error| errors::request(&error))?;
        let parsed = Url::parse(&url.to_string()).map_err(|error| errors::request(&error))?;
        url_check::check_host(&url, &parsed).map_err(framing::url_rejection)
    }

    /// Returns `true` if requests are sent to an HTTP proxy that forwards them, instead of through
    /// a tunnel.
    pub(super) fn is_forwarded(&self) -> bool {
        !self.is_tls && self.proxy.as_ref().is_some_and(|proxy| proxy.url().starts_with("http"))
    }

    /// Returns what the request line of HTTP/1.1 names: the path or, for a forwarding proxy, the
    /// whole URL.
    pub(super) fn request_target(&self, url: &Uri) -> String {
        let path = match url.path_and_query().map_or("/", PathAndQuery::as_str) {
            "" => "/",
            path => path,
        };
        match (self.is_forwarded(), path.starts_with('/')) {
            (true, true) => format!("http://{}{path}", self.authority),
            (true, false) => format!("http://{}/{path}", self.authority),
            (false, true) => path.to_owned(),
            (false, false) => format!("/{path}"),
        }
    }

    /// Adds the headers that follow from the URL and the proxy: the host, the credentials in the
    /// URL, and those of a forwarding proxy. Headers of the caller stay.
    ///
    /// # Errors
    /// `Request` if the credentials cannot be written as a header.
    pub(super) fn add_headers(&self, url: &Uri, headers: &mut HeaderMap) -> Result<(), Error> {
        if !headers.contains_key(header::HOST) {
            let host = match self.authority.port_u16() {
                Some(port) if port != default_port(self.is_tls) => self.authority.as_str(),
                _ => self.authority.host(),
            };
            let host = HeaderValue::from_str(host).map_err(|error| errors::request(&error))?;
            headers.insert(header::HOST, host);
        }
        let user = url.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        if let Some((user, _)) = user
            && !headers.contains_key(header::AUTHORIZATION)
        {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            let decoded = |text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
            headers.insert(header::AUTHORIZATION, basic_credentials(&decoded(user), &decoded(password))?);
        }
        if self.is_forwarded()
            && let Some((user, password)) = self.proxy.as_ref().and_then(ProxyServer::credentials)
        {
            headers.insert(header::PROXY_AUTHORIZATION, basic_credentials(user, password)?);
        }
        Ok(())
    }
}

/// Returns credentials for the scheme Basic (RFC 7617).
///
/// # Errors
/// Never in practice: Base64 can always be written as a header.
pub(super) fn basic_credentials(user: &str, password: &str) -> Result<HeaderValue, Error> {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    let mut value =
        HeaderValue::from_str(&format!("Basic {encoded}")).map_err(|error| errors::request(&error))?;
    value.set_sensitive(true);
    Ok(value)
}
