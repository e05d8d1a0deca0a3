//! The built-in transport: HTTP/1.1 and HTTP/2 over rustls, based on reqwest.
//!
//! Connections are pooled per proxy. Each pool has one fixed proxy or none, so reqwest never
//! selects a proxy itself.

use std::collections::HashMap;
use std::env;
use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use parking_lot::RwLock;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Certificate;
use tower::Service;

use super::connection_shards::{ShardGuard, Shards};
use super::proxy::{ProxyRules, ProxyServer};
use crate::body::{RequestBody, ResponseBody};
use crate::config::TransportConfig;
use crate::error::{Error, ErrorKind};
use crate::framing;
use tidegate_protocol::url_check;

/// Maximum number of proxies whose connections are kept. If one more is used, the idle connections
/// of all proxies are closed.
const MAX_PROXIES: usize = 64;

/// The built-in HTTP transport. Cheap to clone; clones share connections.
///
/// Bodies are sent and received unchanged: redirects are not followed and compressed content is not
/// decoded, because the caller's SDK does both.
///
/// ```
/// use tidegate::transport::{Http, ProxyRules};
/// use tidegate::{Config, Gate, Transport, config::TransportConfig};
///
/// let direct = Http::with_proxies(TransportConfig::default(), ProxyRules::default())?;
/// let gate = Gate::over(Config::default(), Transport::new(direct))?;
/// # Ok::<(), tidegate::Error>(())
/// ```
///
/// # Cancel safety
///
/// Dropping the response future or the body resets the stream (HTTP/2) or closes the connection
/// (HTTP/1.1).
#[derive(Clone)]
pub struct Http(Arc<Inner>);

struct Inner {
    config: TransportConfig,
    /// The proxy rules for requests without rules in their extensions. `None` if `proxy_from_env`
    /// is `false`, so that all connections are direct.
    rules: Option<ProxyRules>,
    /// The connection pools by proxy, and then by shard. The key `None` stands for direct
    /// connections.
    pools: RwLock<HashMap<Option<ProxyServer>, Vec<reqwest::Client>>>,
    /// The certificate authorities in the file that `SSL_CERT_FILE` names. `None` means those of
    /// the platform.
    authorities: Option<Vec<Certificate>>,
    shards: Shards,
}

impl Http {
    /// Creates a transport with the proxies of this process's environment variables
    /// ([`ProxyRules::from_process_env`]).
    ///
    /// # Errors
    /// `Config` if `SSL_CERT_FILE`, the platform's authorities or a proxy variable cannot be read.
    pub fn new(config: TransportConfig) -> Result<Self, Error> {
        let rules = match config.proxy_from_env {
            true => ProxyRules::from_process_env()?,
            false => ProxyRules::default(),
        };
        Self::with_proxies(config, rules)
    }

    /// Creates a transport that uses the proxies of `rules`. If the extensions of a request contain
    /// other [`ProxyRules`], they replace `rules` for this request. If `config.proxy_from_env` is
    /// false, all connections are direct.
    ///
    /// # Errors
    /// `Config` if `SSL_CERT_FILE` or the platform's authorities cannot be read.
    pub fn with_proxies(config: TransportConfig, rules: ProxyRules) -> Result<Self, Error> {
        let rules = config.proxy_from_env.then_some(rules);
        let authorities = environment_authorities()?;
        let first = pool(&config, None, authorities.as_deref())?;
        let pools = RwLock::new(HashMap::from([(None, vec![first])]));
        Ok(Self(Arc::new(Inner { config, rules, pools, authorities, shards: Shards::default() })))
    }

    /// Returns the proxy for a request, by the rules in its extensions or, without them, by those
    /// of the transport. `None` means a direct connection.
    fn proxy_for(&self, request: &Request<RequestBody>) -> Option<ProxyServer> {
        let rules = self.0.rules.as_ref()?;
        request.extensions().get().unwrap_or(rules).proxy_for(request.uri()).cloned()
    }

    /// Returns the connection pool for a proxy and a shard, and creates it when it is first used.
    /// The proxy `None` stands for direct connections.
    ///
    /// # Errors
    /// As for the function [`pool`].
    fn pool(&self, proxy: Option<ProxyServer>, shard: usize) -> Result<reqwest::Client, Error> {
        if let Some(pool) = self.0.pools.read().get(&proxy).and_then(|pools| pools.get(shard)) {
            return Ok(pool.clone());
        }
        let mut pools = self.0.pools.write();
        if pools.len() > MAX_PROXIES && !pools.contains_key(&proxy) {
            pools.retain(|proxy, _| proxy.is_none());
        }
        let pools = pools.entry(proxy.clone()).or_default();
        while pools.len() <= shard {
            pools.push(pool(&self.0.config, proxy.as_ref(), self.0.authorities.as_deref())?);
        }
        pools.get(shard).cloned().ok_or_else(|| Error::new(ErrorKind::Connect, "no connection pool"))
    }
}

/// Returns the certificate authorities in the file named by `SSL_CERT_FILE`, or `None` if the
/// variable is unset or empty.
///
/// As with OpenSSL, these authorities replace those of the platform, and `SSL_CERT_DIR` adds none.
///
/// # Errors
/// `Config` if the file cannot be read or is not in PEM format.
fn environment_authorities() -> Result<Option<Vec<Certificate>>, Error> {
    let Some(path) = env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) else { return Ok(None) };
    let unusable = |why: String| {
        Error::config(format!(
            "transport: SSL_CERT_FILE: {why}; name a file of PEM certificates, or unset it"
        ))
    };
    let file = std::fs::read(path).map_err(|e| unusable(e.to_string()))?;
    Certificate::from_pem_bundle(&file).map(Some).map_err(|e| unusable(describe(&e)))
}

/// Creates a connection pool. All its requests use `proxy` or, if that is `None`, direct
/// connections.
///
/// # Errors
///
/// `Config` if TLS or the proxy cannot be set up.
fn pool(
    config: &TransportConfig,
    proxy: Option<&ProxyServer>,
    authorities: Option<&[Certificate]>,
) -> Result<reqwest::Client, Error> {
    let unusable = |e| {
        let advice = "check SSL_CERT_FILE and SSL_CERT_DIR, which must name authorities or be unset";
        Error::config(format!("transport: {}; {advice}", describe(&e)))
    };
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(config.connect)
        .pool_max_idle_per_host(config.pool_idle)
        .pool_idle_timeout(config.pool_idle_timeout)
        .tcp_nodelay(true)
        // Long generations send nothing for minutes. Keep-alive packets stop middleboxes from
        // dropping the connection.
        .tcp_keepalive(std::time::Duration::from_secs(60))
        .no_proxy();
    if let Some(authorities) = authorities {
        builder = builder.tls_certs_only(authorities.iter().cloned());
    }
    if let Some(server) = proxy {
        let mut proxy = reqwest::Proxy::all(server.url()).map_err(unusable)?;
        if let Some((user, password)) = server.credentials() {
            // reqwest writes both into a URL and decodes them again.
            let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            proxy = proxy.basic_auth(&encoded(user), &encoded(password));
        }
        builder = builder.proxy(proxy);
    }
    if config.http2_prior_knowledge {
        builder = builder.http2_prior_knowledge();
    }
    builder.build().map_err(unusable)
}

impl Service<Request<RequestBody>> for Http {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let authority = request.uri().authority().ok_or_else(|| {
                Error::new(ErrorKind::Request, "the URL names no host: give an absolute one")
            })?;
            let shard = this.0.shards.assign(authority, this.0.config.http2_streams);
            let pool = this.pool(this.proxy_for(&request), shard.index)?;
            let upload = request.body().upload_progress();
            let request = outgoing(request)?;
            let response = pool.execute(request).await.map_err(|error| {
                upload.and_then(|upload| upload.failure()).unwrap_or_else(|| from_reqwest(error))
            })?;
            shard.on_response(response.version());
            let response: Response<reqwest::Body> = response.into();
            Ok(response.map(|body| ResponseBody::new(Incoming { body, _shard: shard })))
        })
    }
}

/// Converts a request to the request type of reqwest. The extensions of the request are dropped.
///
/// # Errors
///
/// `Request` if reqwest cannot represent the request, or would send it to another host than the URL
/// names.
fn outgoing(mut request: Request<RequestBody>) -> Result<reqwest::Request, Error> {
    // Extensions carry data between layers. The connection could keep them, and the slot among
    // them, for any time.
    request.extensions_mut().clear();
    let uri = request.uri().clone();
    let request = request.map(|body| match body.bytes() {
        Some(bytes) => reqwest::Body::from(bytes.clone()),
        None if body.is_end_stream() => reqwest::Body::from(Bytes::new()),
        None => reqwest::Body::wrap(body),
    });
    let request = reqwest::Request::try_from(request).map_err(from_reqwest)?;
    url_check::check_host(&uri, request.url()).map_err(framing::url_rejection)?;
    Ok(request)
}

/// A response body that is read from the connection. Its exchange counts as in flight on its shard
/// until the body is dropped.
struct Incoming {
    body: reqwest::Body,
    _shard: ShardGuard,
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx).map_err(from_reqwest)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Converts an error of reqwest to an [`Error`], whose kind follows from the causes. If the request
/// body returned an [`Error`] itself, returns that error unchanged.
fn from_reqwest(error: reqwest::Error) -> Error {
    // An error of the request's own body is returned unchanged.
    if let Some(own) = sources(&error).find_map(|e| e.downcast_ref::<Error>()) {
        return own.clone();
    }
    let kind = if error.is_connect() && error.is_timeout() {
        ErrorKind::ConnectTimeout
    } else if cannot_connect(&error) {
        ErrorKind::Connect
    } else if error.is_builder() {
        ErrorKind::Request
    } else if sources(&error).any(is_unexpected_end) {
        ErrorKind::Truncated
    } else {
        ErrorKind::Transport
    };
    let described = Error::new(kind, describe(&error));
    if kind != ErrorKind::Connect {
        return described;
    }
    match sources(&error).find_map(|e| e.downcast_ref::<io::Error>()) {
        Some(why) if is_refusal(why) => described.with_connect_refused(),
        Some(why) if is_local(why) => described.with_local_cause(),
        _ => described,
    }
}

/// Returns `true` if no connection was opened, or if none can be, because the port of the URL is
/// above 65,535. As in other clients, that is a failure to connect and not a malformed request.
fn cannot_connect(error: &reqwest::Error) -> bool {
    let is_invalid_port = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref() == Some(&url::ParseError::InvalidPort)
    };
    error.is_connect() || sources(error).any(is_invalid_port)
}

/// Returns `true` if the peer refused or reset the connection attempt.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

/// Returns `true` if the connection failed because this process or machine has no free file
/// descriptors, ports or memory.
fn is_local(error: &io::Error) -> bool {
    // EMFILE (this process), ENFILE (the machine) and Windows' WSAEMFILE. The first two numbers are
    // the same on Linux, macOS and the BSDs.
    const TOO_MANY_FILES: [i32; 3] = [24, 23, 10_024];
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory)
        || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

/// Returns `true` if the error states that the peer ended the body before the announced length.
fn is_unexpected_end(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::UnexpectedEof)
}

/// Returns the causes of an error (its `source` chain) without the error itself, outermost first.
fn sources<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&e| e.source())
}

/// Returns the error and its causes as text, without the URL, whose query may contain a key.
fn describe(error: &reqwest::Error) -> String {
    let what = if cannot_connect(error) {
        "cannot connect"
    } else if error.is_builder() {
        "the request cannot be sent"
    } else {
        "the exchange failed"
    };
    let mut text = what.to_owned();
    for cause in sources(error).skip_while(|e| e.downcast_ref::<reqwest::Error>().is_some()) {
        text += &format!(": {cause}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_local_resources_is_a_local_error() {
        let (refused, reset) = (io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset);
        for (error, refusal, ours) in [
            (refused.into(), true, false),
            (reset.into(), true, false),
            (io::Error::from_raw_os_error(24), false, true),
            (io::ErrorKind::AddrNotAvailable.into(), false, true),
            (io::Error::other("failed to lookup address information"), false, false),
            (io::ErrorKind::TimedOut.into(), false, false),
            (io::ErrorKind::HostUnreachable.into(), false, false),
        ] {
            assert_eq!((is_refusal(&error), is_local(&error)), (refusal, ours), "{error}");
        }
    }
}
