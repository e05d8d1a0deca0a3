//! Servers in process: the simulator, and what keeps books of what it was sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::{Faults, SimConfig, Simulator};
use tower::Service;

/// Tokens of an answer.
pub(crate) const OUTPUT: u64 = 8;

/// A server that answers every call in about 80 ms, however many there are.
pub(crate) fn steady(faults: Faults) -> Simulator {
    let config = SimConfig {
        workers: 1,
        engine: EngineConfig {
            num_blocks: 1_000_000,
            max_num_seqs: 100_000,
            max_num_batched_tokens: 10_000_000,
            prefix_cache: false,
            step: StepCost {
                base_ms: 10.0,
                per_prompt_token_ms: 0.0,
                per_sequence_ms: 0.0,
                ..StepCost::default()
            },
            ..EngineConfig::default()
        },
        faults,
        ..SimConfig::calibrated()
    };
    Simulator::new(config).unwrap()
}

/// Turns requests away, where it says something.
type Script = dyn Fn(usize, &Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync;

/// A server, and what it was sent.
#[derive(Clone)]
pub(crate) struct Upstream {
    simulator: Simulator,
    script: Arc<Script>,
    pub(crate) books: Arc<Books>,
}

#[derive(Default)]
pub(crate) struct Books {
    /// Requests of calls.
    pub(crate) requests: AtomicUsize,
    /// Bodies of those that were answered.
    pub(crate) bodies: Mutex<Vec<Bytes>>,
    open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
}

impl Books {
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// An exchange that is open as long as it lives.
struct Open(Arc<Books>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Upstream {
    pub(crate) fn new(faults: Faults) -> Self {
        Self::scripted(faults, |_, _| None)
    }

    pub(crate) fn scripted(
        faults: Faults,
        script: impl Fn(usize, &Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self { simulator: steady(faults), script: Arc::new(script), books: Arc::default() }
    }

    pub(crate) fn transport(&self) -> Transport {
        Transport::new(self.clone())
    }

    pub(crate) fn simulator(&self) -> &Simulator {
        &self.simulator
    }
}

impl Service<Request<RequestBody>> for Upstream {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        let request = request.map(|body| body.bytes().cloned().unwrap_or_default());
        Box::pin(async move {
            let mut number = 0;
            if request.method() == http::Method::POST {
                number = this.books.requests.fetch_add(1, Ordering::SeqCst);
            }
            if let Some(said) = (this.script)(number, &request) {
                tokio::time::sleep(Duration::from_millis(5)).await;
                return Ok(said.map(ResponseBody::full));
            }
            let asked = request.body().clone();
            let open = this.books.open.fetch_add(1, Ordering::SeqCst) + 1;
            this.books.most_open.fetch_max(open, Ordering::SeqCst);
            let open = Open(this.books.clone());
            let answer = this.simulator.respond(request).await;
            let answer = answer.map_err(|refused| Error::new(ErrorKind::Connect, refused.to_string()))?;
            if answer.status().is_success() {
                this.books.bodies.lock().push(asked);
            }
            Ok(answer.map(|body| {
                ResponseBody::new(
                    body.map_frame(move |frame| {
                        let _ = &open;
                        frame
                    })
                    .map_err(|broken| Error::new(ErrorKind::Transport, broken.to_string())),
                )
            }))
        })
    }
}

pub(crate) fn says(status: u16, body: &'static str) -> Option<Response<Bytes>> {
    let said = Response::builder().status(status).header("content-type", "application/json");
    Some(said.body(Bytes::from_static(body.as_bytes())).unwrap())
}
