//! The client: sends calls through a gate.
//!
//! # What happens to a call
//!
//! First, the target, tenant and lane of the call are read from the request. Then the call is
//! counted, gets its deadline, and has its prompt tokens counted if its target asks for that. The
//! retry layer makes the attempts. Each attempt waits for a slot of the target and is sent, to a
//! replica if the target is a pool. Its response is classified, and the slot is released when the
//! response has ended. If the target rejects the call, the call starts again at the fallback
//! target.
//!
//! This module is the only place where the tower stack is composed. A request passes the layers of
//! `compose` from top to bottom, and its response passes them from bottom to top.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::active_calls::Active;
use crate::body::{RequestBody, ResponseBody};
use crate::config::Mode;
use crate::error::Error;
use crate::framing;
use crate::identify::Identify;
use crate::layers::admission::AdmissionLayer;
use crate::layers::ask_usage::AskUsageLayer;
use crate::layers::count::CountLayer;
use crate::layers::deadline::DeadlineLayer;
use crate::layers::fallback::{FallbackLayer, FallbackRoutes};
use crate::layers::middleware::ResponseFuture;
use crate::layers::observe::{CallLog, ObserveLayer};
use crate::layers::retry::RetryLayer;
use crate::layers::stream::StreamLayer;
use crate::layers::{HedgeLayer, RouteToReplicaLayer};
use crate::transport::Transport;
use crate::transport::foreign::{Foreign, OverridableTransport};
use tidegate_protocol::url_check;

/// The composed layers, which send one request per call of the function.
type Stack = Arc<dyn Fn(Request<RequestBody>) -> ResponseFuture + Send + Sync>;

/// Builds the stack of layers, outermost first. `transport` sends the attempts.
/// `gate_transport` sends the requests by which the gate itself counts prompt tokens.
fn compose(
    transport: OverridableTransport,
    gate_transport: Transport,
    routes: Arc<FallbackRoutes>,
    log: Arc<CallLog>,
    active: Arc<Active>,
) -> Stack {
    let stack = ServiceBuilder::new()
        // If the target rejects the call, sends the call to the fallback target. Outermost, because
        // at the other target the call has new attempts, a new retry budget and a new place in the
        // queue, and is counted there.
        .layer(FallbackLayer::new(routes, active.clone()))
        // Counts and logs the call. Above every other layer that can fail, so each call is counted
        // once, at each target that it reaches, however it ends.
        .layer(ObserveLayer::new(log, active))
        // Ends the call at its deadline. Above retry, because the deadline bounds all attempts
        // together, and the stream of the response.
        .layer(DeadlineLayer::default())
        // Counts the tokens of the prompt exactly, if the target is configured to. Above admission,
        // which needs the count, and above retry, because one count serves all attempts.
        .layer(CountLayer::new(gate_transport))
        // Makes the attempts one after the other. Above admission, because a call must not hold a
        // slot while it backs off. Each attempt queues for its own slot.
        .layer(RetryLayer)
        // If a pool's first token is late, sends a second attempt to another replica. Below retry,
        // which sees the two as one attempt, and above admission, because each of the two holds a
        // slot.
        .layer(HedgeLayer)
        // Waits for a slot, and holds the slot until the response has ended. Below this layer the
        // call is in flight.
        .layer(AdmissionLayer)
        // If the target is a pool, addresses the request to the replica that the permit names.
        .layer(RouteToReplicaLayer)
        // If the target is configured to, asks streams for their token usage, and removes the usage
        // from the response if the caller did not ask for it. Above the stream layer, which reads
        // the usage.
        .layer(AskUsageLayer)
        // Classifies the attempt by its status, its error body and the start of its stream, and
        // watches the stream until it ends.
        .layer(StreamLayer)
        // Exchanges the request for a response, over the transport in the extensions of the request
        // if there is one, and otherwise over the gate's transport.
        .service(transport);
    // No layer has to be polled for readiness, because the innermost service is always ready.
    Arc::new(move |request| stack.clone().call(request))
}

/// Sends calls through a [`Gate`](crate::Gate).
///
/// Created by [`Gate::client`](crate::Gate::client). Clones are cheap and share the gate. A client
/// is also a `tower::Service` that is always ready.
///
/// ```no_run
/// # async fn run(gate: tidegate::Gate) -> Result<(), tidegate::Error> {
/// let request = http::Request::post("https://api.openai.com/v1/chat/completions")
///     .body(r#"{"model": "gpt-4o"}"#.into());
/// let response = gate.client().call(request.unwrap()).await?;
/// println!("{}", response.status());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    identify: Arc<Identify>,
    stack: Stack,
    transport: OverridableTransport,
}

impl Client {
    pub(crate) fn new(
        identify: Arc<Identify>,
        routes: Arc<FallbackRoutes>,
        transport: Transport,
        log: Arc<CallLog>,
        active: Arc<Active>,
    ) -> Self {
        let gate_transport = transport.clone();
        let transport = OverridableTransport::new(transport);
        let stack = compose(transport.clone(), gate_transport, routes, log, active);
        Self { identify, stack, transport }
    }

    /// Sends a call: queues it, admits it, sends it, and retries it as configured for its target.
    ///
    /// Resolves when the first token of the response has arrived or, outside pools, 2 s after its
    /// first event. If the response is not a stream of events, resolves when its head has arrived.
    /// The call holds its slot until the response body ends or is dropped. If the whole body has
    /// arrived with the head, the slot is released before the call resolves.
    ///
    /// An error response of the provider is returned as a response, with the header
    /// `x-should-retry: false`. To set the tenant, the lane and the deadline of the call, put a
    /// [`crate::Context`] into the extensions of the request. In mode `off`, the request is sent
    /// immediately, without any limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future or the response body removes the call from the queue or ends its
    /// upstream exchange, and releases its slot. The slot is released immediately, except over a
    /// [`Foreign`] transport: there it is released when the host has ended the exchange, or after
    /// [`GRACE`](crate::transport::foreign::GRACE).
    ///
    /// # Errors
    ///
    /// - `Request` if the request cannot be sent as it is. The call is then not queued.
    /// - `Refused` if admission rejects the call.
    /// - `Deadline` if the deadline of the call passed, or the kind of the timeout that passed.
    /// - `Connect`, `Transport` or `Truncated` if the exchange failed and no retry follows.
    ///
    /// A request cannot be sent if its path or query would reach the server changed (a `.` or `..`
    /// segment, a backslash, a character that URL parsers rewrite), if it asks for an `upgrade` or
    /// a `transfer-encoding` other than `chunked`, or if its `content-length` is malformed or
    /// differs from the length of the body. If the length of a streamed body differs from its
    /// `content-length`, the exchange fails before the last chunk is sent. An address in an unusual
    /// form, such as `127.1`, fails before a connection is made.
    ///
    /// # Headers
    ///
    /// These headers concern one connection and are not sent: `connection` and the headers that it
    /// names, `keep-alive`, `proxy-connection`, `te` (except `trailers`) and `transfer-encoding`. A
    /// [`Foreign`] transport in the extensions of the request sends the caller's own request, so
    /// only dot segments, backslashes and lengths are checked.
    pub async fn call(&self, mut request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        check(&mut request)?;
        if self.identify.mode() == Mode::Off {
            // The host of a request to a pool is the pool's name, which no server has.
            self.identify.route_in_turn(&mut request).await?;
            return self.transport.clone().oneshot(request).await;
        }
        self.identify.identify(&mut request)?;
        (self.stack)(request).await
    }
}

/// Checks that the transport can send the request unchanged, and removes the headers that concern
/// only the caller's connection. If the request carries its own [`Foreign`] transport, checks only
/// dot segments, backslashes and the length of the body.
///
/// # Errors
/// `Request` if the URL would change on its way, if the declared length of the body is wrong, or if
/// a header asks for an upgrade or an unknown transfer encoding.
fn check(request: &mut Request<RequestBody>) -> Result<(), Error> {
    // A transport in the extensions of the request sends the caller's own request by its own rules.
    let is_foreign = request.extensions().get::<Foreign>().is_some();
    let checked =
        if is_foreign { url_check::check(request.uri()) } else { url_check::check_unchanged(request.uri()) };
    checked.map_err(framing::url_rejection)?;
    framing::declare_length(request)?;
    if is_foreign { Ok(()) } else { framing::remove_connection_headers(request.headers_mut()) }
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
