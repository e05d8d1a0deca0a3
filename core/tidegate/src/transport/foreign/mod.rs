//! Transports that are implemented by a host outside the core, such as a Python or Node program.
//!
//! An httpx transport runs on a Python event loop or a blocked thread, and `fetch` runs on Node's
//! event loop. A worker thread can neither call nor await them. The direction is therefore
//! reversed: the core hands each exchange to the host ([`Host::begin`]), and the host delivers the
//! response through an [`Exchange`]. Caps, retries, cool-downs, deadlines and truncation checks
//! work as with any other transport.
//!
//! # Guarantees
//!
//! - Buffering is bounded: sending a chunk returns whether the host may send more ([`SendState`]).
//! - Dropping the call's future or its response body cancels the exchange once. Anything that the
//!   host sends afterwards is discarded.
//! - The slot of a cancelled exchange is held until the host drops its [`Exchange`], at most
//!   [`GRACE`]. The upstream therefore receives no further call while it still works on a cancelled
//!   one.
//! - A host that panics, never answers, or stops midway fails only its own exchange.

mod body;
mod exchange;
mod exchange_state;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use tower::util::{Either, Oneshot};
use tower::{Service, ServiceExt};

pub use self::exchange::{Exchange, SendState};
use crate::admission::ReleaseGuard;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;
use crate::transport::Transport;

/// The longest time that the slot of a cancelled exchange is held for a host that has not dropped
/// its [`Exchange`]: 5 s.
pub const GRACE: Duration = Duration::from_secs(5);

/// A host that sends requests on behalf of the core.
///
/// Both methods are called on the thread that drives the call. They must return without blocking,
/// and must not take a lock that is held while an [`Exchange`] is used.
pub trait Host: Send + Sync + 'static {
    /// Starts an exchange: the host sends `request`, then delivers the response through `exchange`.
    /// The exchange fails if the host drops `exchange` without calling [`Exchange::end`].
    fn begin(&self, request: Request<RequestBody>, exchange: Exchange);

    /// Cancels the exchange with this number: the host must end it upstream, then drop its
    /// [`Exchange`]. Called at most once for each exchange. The host may have dropped the exchange
    /// at the same time, so it must ignore unknown numbers.
    fn cancel(&self, id: u64);
}

/// A transport that sends requests through a [`Host`]. Cheap to clone.
///
/// It can be used in two ways:
///
/// - As the transport of a whole gate: it is a `tower::Service`, see [`crate::Gate::over`].
/// - In the extensions of one request. The request is then sent through this transport instead of
///   the gate's, in every mode.
///
/// In both cases, the targets, caps, retries and cool-downs of the gate apply.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use tidegate::transport::foreign::{Exchange, Foreign, Host};
/// use tidegate::{RequestBody, Transport};
///
/// struct Hello;
///
/// impl Host for Hello {
///     fn begin(&self, _request: Request<RequestBody>, exchange: Exchange) {
///         if exchange.answer(Response::new(())) {
///             exchange.chunk(Bytes::from("hello"));
///         }
///         exchange.end();
///     }
///
///     fn cancel(&self, _id: u64) {}
/// }
///
/// let transport = Transport::new(Foreign::new(Hello));
/// ```
///
/// # Cancel safety
///
/// Dropping the response future or the body cancels the exchange. The [module](self) states when
/// its slot is released.
#[derive(Clone)]
pub struct Foreign(Arc<dyn Host>);

impl Foreign {
    /// Creates a transport that sends requests through `host`.
    pub fn new(host: impl Host) -> Self {
        Self(Arc::new(host))
    }
}

impl Service<Request<RequestBody>> for Foreign {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let host = self.0.clone();
        Box::pin(async move {
            // Removed because the host may keep the request for any time, and must not keep the
            // slot with it.
            let release_guard = request.extensions_mut().remove::<ReleaseGuard>();
            let headless = request.method() == Method::HEAD;
            let (reader, exchange) = exchange_state::open(number(), host.clone(), release_guard);
            quietly(|| host.begin(request, exchange));
            let head = reader.head().await?;
            let body = body::Incoming::new(reader, &head, headless);
            Ok(head.map(|()| ResponseBody::new(body)))
        })
    }
}

/// A service that sends a request over the [`Foreign`] transport in its extensions, if there is
/// one, and otherwise over the gate's transport. It is always ready: it waits for the readiness of
/// the gate's transport when it sends.
#[derive(Clone)]
pub(crate) struct OverridableTransport(Arc<Transport>);

impl OverridableTransport {
    /// Creates the service. Requests without a [`Foreign`] transport in their extensions use
    /// `transport`.
    pub(crate) fn new(transport: Transport) -> Self {
        Self(Arc::new(transport))
    }
}

impl Service<Request<RequestBody>> for OverridableTransport {
    type Response = Response<ResponseBody>;
    type Error = Error;
    /// Boxed, because the layers above move it.
    type Future = Pin<Box<Oneshot<Either<Foreign, Transport>, Request<RequestBody>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let transport = match request.extensions_mut().remove::<Foreign>() {
            Some(own) => Either::Left(own),
            None => Either::Right(Transport::clone(&self.0)),
        };
        Box::pin(transport.oneshot(request))
    }
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Foreign")
    }
}

fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Calls the host, and logs a panic instead of propagating it. The host is also called while values
/// are dropped, where a second panic would abort the process.
fn quietly(host: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(host)).is_err() {
        tracing::error!("the code of a caller's own transport panicked");
    }
}
