//! The built-in transport: HTTP/1.1 on connections that the calls drive themselves, and HTTP/2 on
//! hyper, over rustls.

mod connection_pool;
mod connector;
mod errors;
mod http1;
mod http2;
mod route;
mod stream;
mod tls;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower::Service;

use self::connection_pool::{CheckedOut, ConnectionPool, RouteConnections};
use self::route::Route;
use super::proxy::{ProxyRules, ProxyServer};
use crate::body::{RequestBody, ResponseBody};
use crate::config::TransportConfig;
use crate::error::Error;

/// How many times a request is sent again at once because an HTTP/2 server has not processed it.
const MAX_RESENDS: usize = 2;

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
/// (HTTP/1.1). So does the end of the body if a streamed request body was not sent completely.
#[derive(Clone)]
pub struct Http {
    /// The proxy rules for requests without rules in their extensions. `None` if `proxy_from_env`
    /// is `false`, so that all connections are direct.
    rules: Option<ProxyRules>,
    pool: Arc<ConnectionPool>,
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
        Ok(Self { rules: config.proxy_from_env.then_some(rules), pool: ConnectionPool::new(&config)? })
    }

    /// Returns the proxy for a request, by the rules in its extensions or, without them, by those
    /// of the transport. `None` means a direct connection.
    fn proxy_for(&self, request: &Request<RequestBody>) -> Option<ProxyServer> {
        let rules = self.rules.as_ref()?;
        request.extensions().get().unwrap_or(rules).proxy_for(request.uri()).cloned()
    }

    /// Sends a request on an open connection, or on a new one. If an open connection turns out to
    /// be closed before anything was sent, the next one is taken. If an HTTP/2 server states that
    /// it has not processed the request, the request is sent again, at most [`MAX_RESENDS`] times.
    async fn exchange(self, mut request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let route = Route::new(request.uri(), self.proxy_for(&request))?;
        let connections = self.pool.connections_of(&route)?;
        // Extensions carry data between layers. A connection could keep them, and the slot among
        // them, for any time.
        request.extensions_mut().clear();
        let url = request.uri().clone();
        route.add_headers(&url, request.headers_mut())?;
        let target = route.request_target(&url);
        let mut resends = 0;
        loop {
            match self.pool.checkout(&route, &connections).await? {
                CheckedOut::Http1 { connection, is_reused } => {
                    let (parts, body) = request.into_parts();
                    let head = http1::RequestHead {
                        method: &parts.method,
                        target: &target,
                        headers: &parts.headers,
                    };
                    match connection.exchange(&head, body).await {
                        Ok(response) => return Ok(response.map(|body| self.incoming(connections, body))),
                        Err(http1::Failure { unsent: Some(body), .. }) if is_reused => {
                            request = Request::from_parts(parts, body);
                        }
                        Err(failure) => return Err(failure.error),
                    }
                }
                CheckedOut::Http2 { mut connection, is_reused } => {
                    let upload = request.body().upload_progress();
                    match connection.exchange(request).await {
                        Ok((response, upload_guard)) => {
                            self.pool.start_reaper();
                            let body = |body| {
                                ResponseBody::new(Http2Body(Some(Http2Exchange {
                                    body,
                                    _upload_guard: upload_guard,
                                    _connection: connection,
                                })))
                            };
                            return Ok(response.map(body));
                        }
                        Err(failure) => match (failure.unsent, failure.refused) {
                            (Some(unsent), _) if is_reused => request = unsent,
                            (_, Some(refused)) if resends < MAX_RESENDS => {
                                resends += 1;
                                request = refused;
                            }
                            _ => {
                                let of_body = upload.and_then(|upload| upload.failure());
                                return Err(of_body.unwrap_or(failure.error));
                            }
                        },
                    }
                }
            }
        }
    }

    /// Returns the body of a response. At its end, or at once if all of it has been received, the
    /// connection returns to the pool.
    fn incoming(self, connections: Arc<RouteConnections>, body: http1::IncomingBody) -> ResponseBody {
        let mut body = Http1Body { body, connections, pool: self.pool };
        let whole = body.body.take_whole();
        body.keep_if_ended();
        match whole {
            Some(whole) => ResponseBody::full(whole),
            None => ResponseBody::new(body),
        }
    }
}

impl Service<Request<RequestBody>> for Http {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        Box::pin(self.clone().exchange(request))
    }
}

/// The body of an HTTP/1.1 response. At its end, the connection returns to the pool.
struct Http1Body {
    body: http1::IncomingBody,
    connections: Arc<RouteConnections>,
    pool: Arc<ConnectionPool>,
}

impl Http1Body {
    fn keep_if_ended(&mut self) {
        if let Some(connection) = self.body.take_reusable() {
            self.pool.keep(&self.connections, connection);
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        this.keep_if_ended();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an HTTP/2 response. `None` once the body has ended or failed.
struct Http2Body(Option<Http2Exchange>);

/// An exchange on an HTTP/2 connection, in flight until it is dropped.
struct Http2Exchange {
    body: hyper::body::Incoming,
    _upload_guard: Option<http2::UploadGuard>,
    _connection: http2::Connection,
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(Http2Exchange { body, .. }) = &mut this.0 else { return Poll::Ready(None) };
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(Err(error)) => {
                this.0 = None;
                Poll::Ready(Some(Err(errors::exchange(&error))))
            }
            None => {
                // hyper passes a reset without an error code on as the end of the body.
                let has_ended = body.is_end_stream();
                this.0 = None;
                Poll::Ready((!has_ended).then(|| Err(errors::truncated())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|exchange| exchange.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |exchange| exchange.body.size_hint())
    }
}
