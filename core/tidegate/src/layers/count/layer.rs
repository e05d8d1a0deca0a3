//! The counting layer, which counts the prompt tokens of calls.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Request, Uri};
use parking_lot::Mutex;

use super::{Counters, MAX_BODY_BYTES, MAX_COUNT_TIME, UNAVAILABLE_FOR, vllm};
use crate::body::RequestBody;
use crate::call::Call;
use crate::clock;
use crate::config::Tokenizer;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, boxed, take_ready, tower_layer};
use crate::transport::{Foreign, ProxyRules, Transport};

/// Counts the prompt tokens of calls to targets whose `tokenizer` is not `learned`. Stores each
/// count in its call ([`Call::exact_input`]).
///
/// *Default*: acts on no call, because the default `tokenizer` is `learned`. The layer must be
/// above admission, which uses the count, and above retry, because one count serves all attempts.
///
/// # Cancel safety
///
/// Dropping the future cancels the request to the counting server. A count that has begun in this
/// process runs to its end.
#[derive(Clone)]
pub(crate) struct CountLayer(Arc<Shared>);

/// The state that the clones of a [`CountLayer`] share.
struct Shared {
    /// The transport over which counting requests are sent.
    transport: Transport,
    counters: Counters,
    /// The targets whose servers failed to count a prompt, with the time until which each is not
    /// asked again.
    paused: Mutex<HashMap<Arc<str>, Instant>>,
}

impl CountLayer {
    /// Creates the layer. Counting requests are sent over `transport`, without admission or
    /// queueing.
    pub(crate) fn new(transport: Transport) -> Self {
        Self(Arc::new(Shared { transport, counters: Counters::new(), paused: Mutex::default() }))
    }
}

impl std::fmt::Debug for CountLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountLayer").field("paused", &self.0.paused).finish_non_exhaustive()
    }
}

tower_layer!(CountLayer);

impl<S: InnerService> Middleware<S> for CountLayer {
    fn applies_to(&self, call: &Call) -> bool {
        is_countable(call)
    }

    fn call(&self, call: Call, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let body = request.body().bytes().filter(|body| body.len() <= MAX_BODY_BYTES).cloned();
        let Some(body) = body else { return boxed(inner.call(request)) };
        let (shared, mut inner) = (self.0.clone(), take_ready(inner));
        Box::pin(async move {
            if let Some(tokens) = shared.count(&call, &request, body).await {
                call.set_exact_input(tokens);
            }
            inner.call(request).await
        })
    }
}

/// Returns `true` if the prompt of the call should be counted: the mode is `enforce`, the target
/// sets a `tokenizer` other than `learned`, the call runs a model, and the request contains the
/// complete prompt.
fn is_countable(call: &Call) -> bool {
    call.target().config().tokenizer != Tokenizer::Learned
        && call.is_inference()
        && call.is_enforced()
        // Content that the provider stores is not part of the body.
        && call.facts().prompt.is_some_and(|prompt| !prompt.has_stored_context)
}

/// Returns the URL and the headers of the request as the server that counts the prompt would get
/// it. The counting request is derived from both. In a pool, this server is any available replica,
/// because the replica of the call is selected after counting. Returns `None` if no replica is
/// available.
fn tokenizer_address<'a>(
    call: &Call,
    request: &'a Request<RequestBody>,
) -> Option<(Uri, Cow<'a, HeaderMap>)> {
    let Some(pool) = call.target().pool() else {
        return Some((request.uri().clone(), Cow::Borrowed(request.headers())));
    };
    let replica = call.target().admission().pick_without_slot()?;
    let mut headers = request.headers().clone();
    headers.remove(HOST);
    Some((pool.url_at(request.uri(), &replica.url)?, Cow::Owned(headers)))
}

impl Shared {
    /// Returns the exact number of tokens in a call's prompt. Returns `None` if the prompt cannot
    /// be counted within [`MAX_COUNT_TIME`].
    async fn count(&self, call: &Call, request: &Request<RequestBody>, body: Bytes) -> Option<u64> {
        match call.target().config().tokenizer {
            Tokenizer::Learned => None,
            #[cfg(feature = "bpe")]
            Tokenizer::Bpe => {
                let count = super::bpe::count(&self.counters, call.facts(), request.headers(), body);
                tokio::time::timeout(MAX_COUNT_TIME, count).await.ok().flatten()
            }
            #[cfg(not(feature = "bpe"))]
            Tokenizer::Bpe => None,
            Tokenizer::Vllm => self.ask(call, request, body).await,
        }
    }

    /// Requests the number of tokens in a call's prompt from the server of the target. Returns
    /// `None` if the prompt cannot be counted, or if no count arrives within [`MAX_COUNT_TIME`]. If
    /// the server had at least half of this time, it is then not asked again for
    /// [`UNAVAILABLE_FOR`].
    async fn ask(&self, call: &Call, request: &Request<RequestBody>, body: Bytes) -> Option<u64> {
        // A transport in a request's extensions is for that request only, so it cannot be used to
        // ask the server.
        if request.extensions().get::<Foreign>().is_some() || self.is_paused(call.target().name()) {
            return None;
        }
        let (uri, headers) = tokenizer_address(call, request)?;
        let proxies = request.extensions().get::<ProxyRules>().cloned();
        let until = tokio::time::Instant::now() + MAX_COUNT_TIME;
        let prepared = vllm::prepare(&self.counters, call.facts(), &uri, &headers, body, proxies);
        let question = tokio::time::timeout_at(until, prepared).await.ok()??;
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        match tokio::time::timeout_at(until, vllm::ask(question, self.transport.clone())).await {
            Ok(Some(tokens)) => return Some(tokens),
            // Busy counting threads have left the server too little time.
            Err(_) if left < MAX_COUNT_TIME / 2 => {}
            Ok(None) | Err(_) => self.pause_asking(call.target().name()),
        }
        None
    }

    /// Returns `true` if the target failed to count a prompt within the last [`UNAVAILABLE_FOR`],
    /// so that it must not be asked now.
    fn is_paused(&self, target: &Arc<str>) -> bool {
        self.paused.lock().get(target).is_some_and(|until| *until > clock::now())
    }

    /// Stops counting requests to the target for [`UNAVAILABLE_FOR`].
    fn pause_asking(&self, target: &Arc<str>) {
        let now = clock::now();
        let mut paused = self.paused.lock();
        paused.retain(|_, until| *until > now);
        paused.insert(target.clone(), now + UNAVAILABLE_FOR);
    }
}
