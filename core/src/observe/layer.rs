//! The outermost tower layer: each call is counted once, however it ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower::{Layer, Service};

use super::{CallLog, Outcome};
use crate::active::{Active, Entered};
use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind};

/// Counts and logs each call, once.
///
/// *Default*: acts on requests that carry a [`Call`]; others pass.
/// *Cancellation safety*: dropping the future or the body counts the call as cancelled.
#[derive(Clone, Debug, Default)]
pub struct ObserveLayer {
    log: Arc<CallLog>,
    active: Arc<Active>,
}

impl ObserveLayer {
    pub(crate) fn new(log: Arc<CallLog>, active: Arc<Active>) -> Self {
        Self { log, active }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = ObserveService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ObserveService { inner, log: self.log.clone(), active: self.active.clone() }
    }
}

/// See [`ObserveLayer`].
#[derive(Clone, Debug)]
pub struct ObserveService<S> {
    inner: S,
    log: Arc<CallLog>,
    active: Arc<Active>,
}

impl<S, B> Service<Request<B>> for ObserveService<S>
where
    S: Service<Request<B>, Response = Response<ResponseBody>, Error = Error> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = request.extensions().get::<Call>().cloned();
        let response = self.inner.call(request);
        let Some(call) = call else { return Box::pin(response) };
        let mut tally = Tally { call, log: self.log.clone(), outcome: None, _active: self.active.enter() };
        Box::pin(async move {
            match response.await {
                Ok(response) => {
                    let failed = response.status().is_client_error() || response.status().is_server_error();
                    Ok(response.map(|body| {
                        let mut counted = Counted { body, failed, tally: Some(tally) };
                        // Nobody asks for the end of a body that has nothing in it.
                        if counted.is_end_stream() {
                            counted.end(Outcome::Completed);
                        }
                        ResponseBody::new(counted)
                    }))
                }
                Err(error) => {
                    tally.outcome = Some(outcome_of(&error));
                    if let Some(reason) = error.reason() {
                        tally.call.metrics().refused(reason);
                    }
                    Err(error)
                }
            }
        })
    }
}

/// One call's entry in the books: written when dropped, as cancelled unless something else was said.
struct Tally {
    call: Call,
    log: Arc<CallLog>,
    outcome: Option<Outcome>,
    _active: Entered,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let now = clock::now();
        let call = &self.call;
        let attempts = call.take_attempts();
        let last = attempts.last();
        let outcome = self.outcome.unwrap_or(match last {
            // Its reader had all of it, and did not care for the end of the connection.
            Some(last) if last.complete => Outcome::Completed,
            _ => Outcome::Cancelled,
        });
        let (metrics, lane) = (call.metrics(), call.lane());
        metrics.ended(outcome);
        let first_token = last.and_then(|last| last.first_token_at);
        let ttft = first_token.map(|at| at.saturating_duration_since(call.queued_at()));
        // What was cancelled says nothing of how long it would have taken.
        let counts = call.is_inference() && outcome != Outcome::Cancelled;
        if let Some(ttft) = ttft.filter(|_| counts) {
            metrics.ttft(lane, ttft);
        }
        if let Some(last) = last.filter(|_| counts)
            && let (Some(first), Some(sent)) = (last.first_token_at, last.sent_at)
        {
            call.target().metrics().upstream_ttft(first.saturating_duration_since(sent));
            let tokens = call.tokens().map_or(last.deltas, |(_, output)| output.max(last.deltas));
            if outcome == Outcome::Completed && tokens > 1 {
                let decode = now.saturating_duration_since(first).as_secs_f64();
                call.target().metrics().tpot(decode / (tokens - 1) as f64);
            }
        }
        if counts && outcome == Outcome::Completed {
            let duration = now.saturating_duration_since(call.queued_at());
            let objective = call.target().config().ttft;
            metrics.completed(
                lane,
                duration,
                objective.is_some_and(|objective| ttft.unwrap_or(duration) <= objective),
            );
        }
        if let Some((input, output)) = call.tokens() {
            metrics.tokens(input, output);
        }
        if call.is_inference() {
            self.log.push(call, outcome, &attempts, now);
        }
    }
}

fn outcome_of(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Refused(_) => Outcome::Refused,
        ErrorKind::Truncated => Outcome::Truncated,
        ErrorKind::Deadline
        | ErrorKind::FirstTokenTimeout
        | ErrorKind::IdleTimeout
        | ErrorKind::ReaderStalled
        | ErrorKind::ConnectTimeout => Outcome::TimedOut,
        _ => Outcome::Broken,
    }
}

/// The outermost body.
struct Counted {
    body: ResponseBody,
    failed: bool,
    tally: Option<Tally>,
}

impl Counted {
    fn end(&mut self, outcome: Outcome) {
        if let Some(mut tally) = self.tally.take() {
            let mut failed = self.failed;
            tally.call.attempt(|attempt| failed |= attempt.failed);
            tally.outcome =
                Some(if failed && outcome == Outcome::Completed { Outcome::Failed } else { outcome });
        }
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !this.body.is_end_stream() => {}
            Some(Ok(_)) | None => this.end(Outcome::Completed),
            Some(Err(error)) => this.end(outcome_of(error)),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
