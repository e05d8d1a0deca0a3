//! What happens to a call, from top to bottom. The only place where the tower stack is composed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::active::Active;
use crate::admission::AdmissionLayer;
use crate::ask_usage::AskUsageLayer;
use crate::body::{RequestBody, ResponseBody};
use crate::config::Mode;
use crate::count::CountLayer;
use crate::deadline::DeadlineLayer;
use crate::error::Error;
use crate::fallback::{FallbackLayer, FallbackRoutes};
use crate::framing;
use crate::hedge::HedgeLayer;
use crate::identify::Identify;
use crate::observe::{CallLog, ObserveLayer};
use crate::pool::PoolLayer;
use crate::retry::RetryLayer;
use crate::stream::StreamLayer;
use crate::transport::Transport;
use crate::transport::foreign::{Choice, Foreign};
use tidegate_protocol::url;

/// The stack, outermost layer first.
fn compose(
    transport: Choice,
    own: Transport,
    routes: Arc<FallbackRoutes>,
    log: Arc<CallLog>,
    active: Arc<Active>,
) -> Transport {
    let stack = ServiceBuilder::new()
        // Outermost: what one target refuses is a new call to another, in that one's books, with its attempts, its budget and its queue.
        .layer(FallbackLayer::new(routes, active.clone()))
        // Above all that can fail, so that every call is counted once, whatever becomes of it below.
        .layer(ObserveLayer::new(log, active))
        // Above retry: the deadline is the call's, not each attempt's, and runs on through the stream.
        .layer(DeadlineLayer::default())
        // Counts prompts exactly where a target asks for that: before admission, which needs the count, and once for all attempts.
        .layer(CountLayer::new(own))
        // Drives the attempts. Above admission: a backoff must not hold a slot, and each attempt queues for its own.
        .layer(RetryLayer)
        // A second attempt at another replica, where a pool's first token is late. Below retry, to which the two are one; above admission, since each has a slot.
        .layer(HedgeLayer)
        // Waits for a slot, and keeps it until the response has ended. Below this line a call is in flight.
        .layer(AdmissionLayer)
        // To the replica that the permit names, where the target is a pool of them.
        .layer(PoolLayer)
        // Above the observer, which must see the usage that is asked for here and hidden from who did not ask.
        .layer(AskUsageLayer)
        // Tells a failed attempt from a good one, by status, error body and first event, and watches the stream.
        .layer(StreamLayer)
        // The exchange itself: by the transport that the request brings along in its extensions, else by the gate's, which is the
        // built-in one or the caller's own.
        .service(transport);
    Transport::new(stack)
}

/// Sends calls through a gate. Cheap to clone; also a `tower::Service`.
#[derive(Clone)]
pub struct Client {
    identify: Arc<Identify>,
    stack: Transport,
    transport: Choice,
}

impl Client {
    pub(crate) fn new(
        identify: Arc<Identify>,
        routes: Arc<FallbackRoutes>,
        transport: Transport,
        log: Arc<CallLog>,
        active: Arc<Active>,
    ) -> Self {
        let own = transport.clone();
        let transport = Choice::over(transport);
        Self { identify, stack: compose(transport.clone(), own, routes, log, active), transport }
    }

    /// One call: queued, admitted, sent, retried as its target allows. Resolves when the response's first event is seen, or its head where it has
    /// no events; the body streams on, and holds the slot.
    ///
    /// A provider's own failure is a response, marked `x-should-retry: false`. Who calls, how urgently and until when is a
    /// [`crate::Context`] in the request's extensions.
    ///
    /// *Cancellation safety*: dropping the future or the body gives everything back and ends the upstream exchange at once. Over a transport that
    /// can only be asked to end ([`crate::transport::foreign`]) the slot goes back when it has, or after a grace.
    ///
    /// # Errors
    /// `Request` if the request cannot be sent as it is, before it waits for a slot; `Refused` at
    /// the door; `Deadline` and the timeouts; `Connect`, `Transport` where the exchange failed for
    /// good.
    ///
    /// A request cannot be sent if its path or query would reach the server changed (a `.` or `..`
    /// segment, a backslash, a character that URL parsers rewrite), if it asks for an `upgrade` or
    /// a `transfer-encoding` other than `chunked`, or if its `content-length` is malformed or
    /// differs from the body. A streamed body of another length fails on the way, with its last
    /// chunk unsent. An address in an unusual form, such as `127.1`, fails before a connection is
    /// made.
    ///
    /// `connection`, the headers that it names, `keep-alive`, `proxy-connection`, `te` (but for
    /// `trailers`) and `transfer-encoding` concern one connection and are not sent. A [`Foreign`]
    /// transport in the request's extensions sends the caller's own request: only dot segments,
    /// backslashes and lengths are checked.
    pub async fn call(&self, mut request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        check(&mut request)?;
        if self.identify.mode() == Mode::Off {
            // A pool's name is no address.
            self.identify.point(&mut request).await?;
            return self.transport.clone().oneshot(request).await;
        }
        self.identify.identify(&mut request)?;
        self.stack.clone().oneshot(request).await
    }
}

/// Checks that a request can be sent as it is, and removes the headers of the caller's connection.
fn check(request: &mut Request<RequestBody>) -> Result<(), Error> {
    // A transport that the request brings along sends the caller's own request, by its own rules.
    let is_own = request.extensions().get::<Foreign>().is_some();
    let checked = if is_own { url::check(request.uri()) } else { url::check_unchanged(request.uri()) };
    checked.map_err(framing::url_rejection)?;
    framing::declare_length(request)?;
    if is_own { Ok(()) } else { framing::remove_connection_headers(request.headers_mut()) }
}

impl Service<Request<RequestBody>> for Client {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { Client::call(&client, request).await })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("mode", &self.identify.mode()).finish_non_exhaustive()
    }
}
