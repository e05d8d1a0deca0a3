//! An in-process server that records the requests it receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidegate::{Error, RequestBody, ResponseBody, Transport};
use tidegate_sim::{Faults, Simulator};
use tidegate_test_servers::{constant_steps, respond};
use tower::service_fn;

/// Output tokens of each answer.
pub(crate) const OUTPUT: u64 = 8;

/// Returns a simulator that answers each call in about 80 ms, at any load.
pub(crate) fn steady(faults: Faults) -> Simulator {
    Simulator::new(constant_steps(10.0, faults)).unwrap()
}

/// A function that may replace the simulator's response to a request. Its arguments are the number
/// of earlier POST requests (0 if the request is no POST), and the request. If it returns `None`,
/// the simulator answers.
type Script = dyn Fn(usize, &Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync;

/// A server that answers by a script or otherwise by a simulator, with a log of the requests.
#[derive(Clone)]
pub(crate) struct Upstream {
    simulator: Simulator,
    script: Arc<Script>,
    pub(crate) log: Arc<UpstreamLog>,
}

#[derive(Default)]
pub(crate) struct UpstreamLog {
    /// Number of POST requests received.
    pub(crate) requests: AtomicUsize,
    /// Bodies of the POST requests that the simulator answered with a 2xx status.
    pub(crate) bodies: Mutex<Vec<Bytes>>,
    open: AtomicUsize,
    pub(crate) max_open: AtomicUsize,
}

impl UpstreamLog {
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Guard of an open exchange. Dropping it decreases the number of open exchanges in the log.
struct OpenExchange(Arc<UpstreamLog>);

impl Drop for OpenExchange {
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
        Self::over(steady(faults), script)
    }

    pub(crate) fn over(
        simulator: Simulator,
        script: impl Fn(usize, &Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self { simulator, script: Arc::new(script), log: Arc::default() }
    }

    pub(crate) fn transport(&self) -> Transport {
        let this = self.clone();
        Transport::new(service_fn(move |request| this.clone().exchange(request)))
    }

    async fn exchange(self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let mut number = 0;
        if request.method() == http::Method::POST {
            number = self.log.requests.fetch_add(1, Ordering::SeqCst);
        }
        let body = request.body().bytes().cloned().unwrap_or_default();
        let (head, _) = request.into_parts();
        let asked = Request::from_parts(head.clone(), body.clone());
        if let Some(answer) = (self.script)(number, &asked) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            return Ok(answer.map(ResponseBody::full));
        }
        let in_flight = self.log.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.log.max_open.fetch_max(in_flight, Ordering::SeqCst);
        let open = OpenExchange(self.log.clone());
        let response = respond(&self.simulator, Request::from_parts(head, body.clone().into())).await?;
        if response.status().is_success() {
            self.log.bodies.lock().push(body);
        }
        Ok(response.map(|body| {
            ResponseBody::new(body.map_frame(move |frame| {
                let _ = &open;
                frame
            }))
        }))
    }

    pub(crate) fn simulator(&self) -> &Simulator {
        &self.simulator
    }
}

pub(crate) fn json_response(status: u16, body: &'static str) -> Option<Response<Bytes>> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    Some(response.body(Bytes::from_static(body.as_bytes())).unwrap())
}
