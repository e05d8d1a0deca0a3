//! The tower layer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Request, Uri};
use parking_lot::Mutex;

use super::vllm::{self, No};
use super::{Counters, LARGEST, LONGEST, SILENT};
use crate::body::RequestBody;
use crate::call::Call;
use crate::clock;
use crate::config::Tokenizer;
use crate::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};
use crate::transport::{Foreign, ProxyRules, Transport};

/// Counts the prompts of calls to targets whose `tokenizer` is not `learned`, and tells the call ([`Call::exact_input`]).
///
/// *Default*: acts on no call, since prompts are estimated by default. Wrong order: below admission, which needs the count, or below retry, which
/// would count each attempt.
/// *Cancellation safety*: dropping the future ends the question, or leaves a count that has begun to end by itself.
#[derive(Clone)]
pub struct CountLayer(Arc<Shared>);

struct Shared {
    /// By which servers are asked.
    transport: Transport,
    counters: Counters,
    /// Targets that did not answer, and until when they are left alone.
    silent: Mutex<HashMap<Arc<str>, Instant>>,
}

impl CountLayer {
    /// Servers are asked by this transport, beside every queue.
    pub fn new(transport: Transport) -> Self {
        Self(Arc::new(Shared { transport, counters: Counters::new(), silent: Mutex::default() }))
    }
}

impl std::fmt::Debug for CountLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountLayer").field("silent", &self.0.silent).finish_non_exhaustive()
    }
}

tower_layer!(CountLayer);

impl<S: InnerService> Middleware<S> for CountLayer {
    fn call(&self, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let mut inner = take_ready(inner);
        let Some((call, body)) = countable(&request) else { return Box::pin(inner.call(request)) };
        let shared = self.0.clone();
        Box::pin(async move {
            if let Some(tokens) = shared.count(&call, &request, body).await {
                call.set_exact_input(tokens);
            }
            inner.call(request).await
        })
    }
}

/// A call that may be counted, with its body.
fn countable(request: &Request<RequestBody>) -> Option<(Call, Bytes)> {
    let call = request.extensions().get::<Call>()?;
    if call.target().config().tokenizer == Tokenizer::Learned || !call.is_inference() || !call.is_enforced() {
        return None;
    }
    // What the provider keeps is not in the body.
    call.facts().prompt.filter(|prompt| !prompt.kept)?;
    let body = request.body().bytes().filter(|body| body.len() <= LARGEST)?;
    Some((call.clone(), body.clone()))
}

/// Where to ask: of a pool, any replica that calls may go to now; which of them gets the call is not known before it is counted.
fn place<'a>(call: &Call, request: &'a Request<RequestBody>) -> Option<(Uri, Cow<'a, HeaderMap>)> {
    let Some(addresses) = call.target().addresses() else {
        return Some((request.uri().clone(), Cow::Borrowed(request.headers())));
    };
    let replica = call.target().admission().pick_without_slot()?;
    let mut headers = request.headers().clone();
    headers.remove(HOST);
    Some((addresses.at(request.uri(), &replica.url)?, Cow::Owned(headers)))
}

impl Shared {
    async fn count(&self, call: &Call, request: &Request<RequestBody>, body: Bytes) -> Option<u64> {
        match call.target().config().tokenizer {
            Tokenizer::Learned => None,
            #[cfg(feature = "bpe")]
            Tokenizer::Bpe => {
                let count = super::bpe::count(&self.counters, call.facts(), request.headers(), body);
                tokio::time::timeout(LONGEST, count).await.ok().flatten()
            }
            #[cfg(not(feature = "bpe"))]
            Tokenizer::Bpe => None,
            Tokenizer::Vllm => self.ask(call, request, body).await,
        }
    }

    async fn ask(&self, call: &Call, request: &Request<RequestBody>, body: Bytes) -> Option<u64> {
        // A transport that the request brings along serves that request alone: it is somebody's own client, and this is not its call.
        if request.extensions().get::<Foreign>().is_some() || self.is_silent(call.target().name()) {
            return None;
        }
        let (uri, headers) = place(call, request)?;
        let (proxies, transport) =
            (request.extensions().get::<ProxyRules>().cloned(), self.transport.clone());
        let count = vllm::count(&self.counters, call.facts(), &uri, &headers, body, proxies, transport);
        match tokio::time::timeout(LONGEST, count).await {
            Ok(Ok(tokens)) => Some(tokens),
            Ok(Err(No::Question)) => None,
            Ok(Err(No::Answer)) | Err(_) => {
                self.leave_alone(call.target().name());
                None
            }
        }
    }

    fn is_silent(&self, target: &Arc<str>) -> bool {
        self.silent.lock().get(target).is_some_and(|until| *until > clock::now())
    }

    fn leave_alone(&self, target: &Arc<str>) {
        let now = clock::now();
        let mut silent = self.silent.lock();
        silent.retain(|_, until| *until > now);
        silent.insert(target.clone(), now + SILENT);
    }
}
