//! Opens connections: resolves names, connects (with happy eyeballs), passes proxies, starts TLS.

use std::future::{Ready, ready};
use std::io;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use tower::Service;

use super::super::proxy::ProxyServer;
use super::errors;
use super::route::{Route, basic_credentials};
use super::stream::Stream;
use super::tls::{Peer, Tls};
use crate::config::TransportConfig;
use crate::error::{Error, ErrorKind};

/// Long generations send nothing for minutes. Keep-alive packets stop middleboxes from dropping the
/// connection.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// Opens connections to servers.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Tls,
    timeout: Duration,
    http2_prior_knowledge: bool,
}

/// A connection that was just opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// Whether the server speaks HTTP/2 on it. Otherwise it speaks HTTP/1.1.
    pub(super) is_http2: bool,
}

impl Connector {
    /// Creates a connector.
    ///
    /// # Errors
    /// `Config` if the certificate authorities cannot be read.
    pub(super) fn new(config: &TransportConfig) -> Result<Self, Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_connect_timeout(Some(config.connect));
        Ok(Self {
            tcp,
            tls: Tls::new()?,
            timeout: config.connect,
            http2_prior_knowledge: config.http2_prior_knowledge,
        })
    }

    /// Returns `true` if a server at this route may speak HTTP/2.
    pub(super) fn may_speak_http2(&self, route: &Route) -> bool {
        route.is_tls || self.starts_http2(route)
    }

    /// Returns `true` if HTTP/2 is used on a route without TLS. Proxies that forward requests are
    /// spoken to in HTTP/1.1, because nothing is known about them.
    fn starts_http2(&self, route: &Route) -> bool {
        self.http2_prior_knowledge && !route.is_forwarded()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `Connect` or `ConnectTimeout`.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(super) async fn open(&self, route: &Route) -> Result<Opened, Error> {
        let opened = tokio::time::timeout(self.timeout, self.open_unlimited(route));
        opened.await.unwrap_or_else(|_| Err(errors::connect_timeout()))
    }

    async fn open_unlimited(&self, route: &Route) -> Result<Opened, Error> {
        let stream = match &route.proxy {
            None => self.tcp(route.host(), route.port()?).await?,
            Some(proxy) => self.through(proxy, route).await?,
        };
        if route.is_tls {
            let (stream, is_http2) = self.tls.start(stream, route.host(), Peer::Server).await?;
            return Ok(Opened { stream, is_http2 });
        }
        Ok(Opened { stream, is_http2: self.starts_http2(route) })
    }

    /// Opens a socket to the first address of `host` that answers.
    async fn tcp(&self, host: &str, port: u16) -> Result<Stream, Error> {
        let stream =
            self.tcp.clone().call(url_of(host, port)?).await.map_err(|error| errors::connect(&error))?;
        Ok(Stream::Tcp(stream.into_inner()))
    }

    /// Opens a stream through a proxy: to the proxy itself if it forwards requests, otherwise a
    /// tunnel to the server.
    async fn through(&self, proxy: &ProxyServer, route: &Route) -> Result<Stream, Error> {
        let url: Uri = proxy.url().parse().map_err(|error| errors::connect(&error))?;
        let host = url.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let scheme = url.scheme_str().unwrap_or_default();
        let default_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => 1080,
        };
        let mut stream = self.tcp(host, url.port_u16().unwrap_or(default_port)).await?;
        if scheme == "https" {
            (stream, _) = self.tls.start(stream, host, Peer::Proxy).await?;
        }
        if route.is_forwarded() {
            return Ok(stream);
        }
        let credentials = proxy.credentials();
        let destination = url_of(route.host(), route.port()?)?;
        let tunnel = match scheme {
            "http" | "https" => {
                let mut tunnel = Tunnel::new(url.clone(), OneStream::new(stream));
                if let Some((user, password)) = credentials {
                    tunnel = tunnel.with_auth(basic_credentials(user, password)?);
                }
                tunnel.call(destination).await.map_err(|error| errors::connect(&error))?
            }
            _ => {
                let destination = match scheme {
                    "socks5" => resolve(route).await?,
                    _ => destination,
                };
                let mut tunnel = SocksV5::new(url.clone(), OneStream::new(stream));
                if let Some((user, password)) = credentials {
                    tunnel = tunnel.with_auth(user.to_owned(), password.to_owned());
                }
                tunnel.call(destination).await.map_err(|error| errors::connect(&error))?
            }
        };
        Ok(tunnel.into_inner())
    }
}

/// Returns the URL of the first address of the server, for a SOCKS proxy that gets addresses only.
async fn resolve(route: &Route) -> Result<Uri, Error> {
    let mut addresses = tokio::net::lookup_host((route.host(), route.port()?))
        .await
        .map_err(|error| errors::connect(&error))?;
    match addresses.next() {
        Some(address) => url_of(&address.ip().to_string(), address.port()),
        None => Err(Error::new(ErrorKind::Connect, "cannot connect: the name has no address")),
    }
}

/// Returns the URL `http://HOST:PORT/`.
fn url_of(host: &str, port: u16) -> Result<Uri, Error> {
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let authority = Authority::try_from(authority).map_err(|error| errors::connect(&error))?;
    let url = Uri::builder().scheme("http").authority(authority).path_and_query("/").build();
    url.map_err(|error| errors::connect(&error))
}

/// A connector that returns a stream which is already open, for the handshakes with proxies.
struct OneStream(Option<TokioIo<Stream>>);

impl OneStream {
    fn new(stream: Stream) -> Self {
        Self(Some(TokioIo::new(stream)))
    }
}

impl Service<Uri> for OneStream {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Ready<io::Result<TokioIo<Stream>>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::Error::other("the stream is in use")))
    }
}
