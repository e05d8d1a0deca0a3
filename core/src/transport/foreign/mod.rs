//! The caller's own transport: a mailbox, served by whatever world the caller lives in.
//!
//! An httpx transport lives on a Python event loop or a blocked thread, a `fetch` on Node's loop. None can be called from a worker and awaited, so
//! the bridge is turned round: an exchange is put into the host's hands ([`Host::begin`]) and the host brings the answer when it has one
//! ([`Exchange`]). Everything above it (caps, retries, cool-downs, deadlines, truncation) is the same code as over any transport.
//!
//! Promises:
//! - Nothing is read ahead without bound: the host is told with each chunk whether to go on ([`Room`]).
//! - Whoever drops the call's future or its body cancels the exchange, once; what the host says afterwards is dropped where it arrives.
//! - The slot of a cancelled exchange is held until the host acknowledges the end by dropping its [`Exchange`], or for [`GRACE`]: the upstream
//!   is not sent another call while it is busy with one that nobody waits for.
//! - A host that panics, never answers, or breaks off fails its own exchange and nothing else.

mod body;
mod cell;
mod choice;
mod exchange;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use tower::Service;

pub(crate) use self::choice::Choice;
pub use self::exchange::{Exchange, Room};
use crate::admission::ReleaseGuard;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;

/// How long the slot of a cancelled exchange waits for the host to say that it is over.
pub const GRACE: Duration = Duration::from_secs(5);

/// Who serves a mailbox. Both calls are made by whatever thread drives the call: they must return at once, and may take no lock that is
/// held while an [`Exchange`] is used.
pub trait Host: Send + Sync + 'static {
    /// Takes on an exchange: send the request, then answer. Dropping the exchange unanswered fails it.
    fn begin(&self, request: Request<RequestBody>, exchange: Exchange);

    /// Nobody waits for that exchange any more: end it upstream, then drop its [`Exchange`]. Comes at most once for each; it may cross the
    /// drop, so a number that is not known any more is to be ignored.
    fn cancel(&self, id: u64);
}

/// A transport that is a [`Host`]'s. Cheap to clone.
///
/// Two uses: as the transport of a whole gate (it is a `tower::Service`, see [`crate::Gate::over`]), or in the extensions of a
/// request, which then goes by it, whatever the gate's transport is, and in every mode. Targets, caps, retries and cool-downs are
/// the gate's either way.
///
/// *Cancellation safety*: dropping the future or the body cancels the exchange; see the module for when its slot is free.
#[derive(Clone)]
pub struct Foreign(Arc<dyn Host>);

impl Foreign {
    /// Over this host.
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
            // The host may keep its request for as long as it likes; the slot must not depend on it.
            let release_guard = request.extensions_mut().remove::<ReleaseGuard>();
            let headless = request.method() == Method::HEAD;
            let (reader, exchange) = cell::open(number(), host.clone(), release_guard);
            quietly(|| host.begin(request, exchange));
            let head = reader.head().await?;
            let body = body::Incoming::new(reader, &head, headless);
            Ok(head.map(|()| ResponseBody::new(body)))
        })
    }
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Foreign")
    }
}

/// Tells exchanges of this process apart.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A panic of the host ends here: it is called while calls are dropped, where a second one would end the process.
fn quietly(host: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(host)).is_err() {
        tracing::error!("the host of a caller's own transport panicked");
    }
}
