//! A client that is the bottleneck: it takes a while to read each event of a stream, and does
//! nothing else meanwhile.
//!
//! Under the paused clock computing takes no time. So the clock is advanced by hand, and every
//! timer of the process fires late, as in a thread that computes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame};
use tidegate::{Error, RequestBody, ResponseBody, Transport};
use tidegate_sweep::{CpuMonitor, CpuUsage};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

/// A transport with a slow client: it takes the time `each` to read a chunk, and does nothing else
/// meanwhile.
#[derive(Clone)]
pub(crate) struct SlowReader {
    inner: Transport,
    each: Duration,
    /// The total reading time so far, in nanoseconds.
    worked: Arc<AtomicU64>,
}

impl SlowReader {
    pub(crate) fn new(inner: Transport, each: Duration) -> Self {
        Self { inner, each, worked: Arc::default() }
    }

    /// Returns a monitor. Each call of it returns the share of time, from 0 to 1, in which the
    /// client's processor was busy since the previous call.
    pub(crate) fn cpu(&self) -> CpuMonitor {
        let (worked, mut last) = (self.worked.clone(), (Instant::now(), 0));
        Box::new(move || {
            let (now, so_far) = (Instant::now(), worked.load(Ordering::Relaxed));
            let (passed, did) = (now - last.0, Duration::from_nanos(so_far - last.1));
            last = (now, so_far);
            (!passed.is_zero()).then(|| CpuUsage {
                process: (did.as_secs_f64() / passed.as_secs_f64()).min(1.0),
                machine: None,
            })
        })
    }
}

impl Service<Request<RequestBody>> for SlowReader {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let Self { inner, each, worked } = self.clone();
        Box::pin(async move {
            let response = inner.oneshot(request).await?;
            Ok(response.map(|inner| ResponseBody::new(Reader { inner, each, worked, works: None })))
        })
    }
}

type Work = BoxFuture<'static, ()>;

struct Reader {
    inner: ResponseBody,
    each: Duration,
    worked: Arc<AtomicU64>,
    /// The read in progress, and the chunk that it returns. `None` while no chunk is being read.
    works: Option<(Work, Frame<Bytes>)>,
}

impl Body for Reader {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let each = self.each;
        if self.works.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.worked.fetch_add(each.as_nanos() as u64, Ordering::Relaxed);
                    self.works = Some((Box::pin(tokio::time::advance(each)), frame));
                }
                other => return Poll::Ready(other),
            }
        }
        if let Some((works, _)) = &mut self.works {
            ready!(works.as_mut().poll(cx));
        }
        Poll::Ready(self.works.take().map(|(_, frame)| Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.works.is_none() && self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tidegate_sim::{SimConfig, Simulator};
    use tidegate_test_servers::simulator_transport;

    use super::*;
    use crate::experiments::sweep::drawn_calls;
    use crate::trace_lengths::Work as Lengths;

    #[tokio::test(start_paused = true)]
    async fn nothing_happens_while_it_reads() {
        let simulator = Simulator::new(SimConfig::calibrated()).unwrap();
        let client =
            SlowReader::new(simulator_transport(&simulator, Duration::ZERO), Duration::from_millis(200));
        let (mut cpu, began) = (client.cpu(), Instant::now());
        let request = drawn_calls::request(Lengths { prompt: 10, output: 20 }, true);
        let body = client.oneshot(request).await.unwrap().into_body();
        body.collect().await.unwrap();
        // 20 tokens and an end, each of which takes four times as long to read as to make.
        assert!(began.elapsed() >= Duration::from_millis(21 * 200));
        assert!(cpu().unwrap().process > 0.9);
    }
}
