//! A response's body that holds the permit until the response ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::apply::settle;
use crate::adaptive::Ended;
use crate::admission::{CancelSignal, Permit, ReleaseGuard};
use crate::body::ResponseBody;
use crate::call::{AttemptResult, Call, ExchangeRecord, outcome_of_error};
use crate::clock;
use crate::error::Error;
use crate::estimate::LengthSample;
use crate::kv::Progress;
use crate::placement::Fault;
use crate::wire::RateHeaders;
use tidegate_policy::outcome::{AttemptOutcome, Cancellation};

/// Holds a permit, first for the attempt's future, then for its body. Gives it back at the end, on failure, or when dropped.
pub(super) struct Held {
    call: Call,
    permit: Option<(Permit, ReleaseGuard)>,
    cancel_signal: Option<Arc<CancelSignal>>,
    body: Option<ResponseBody>,
    /// What the exchange has shown, once its response has begun.
    exchange: Option<ExchangeRecord>,
    /// How far the answer has come, for the scheduler.
    progress: Progress,
    /// What the estimator has learned of its length.
    sample: LengthSample,
    /// Whether its first token is still to come, as far as the limit knows.
    awaits: bool,
    /// Whether it is the upstream that we wait for now, and not the reader.
    waits: bool,
    /// How the attempt ended, where something said so.
    ended: Option<Ended>,
}

impl Held {
    pub(super) fn new(call: Call, mut permit: Permit, release_guard: ReleaseGuard, can_replay: bool) -> Self {
        let is_pool = permit.placed().is_some();
        let cancel_signal = if can_replay && (call.facts().repeatable || !is_pool) {
            permit.cancel_signal()
        } else {
            // It could not be made again, or may have run and must not run twice: it is not called back.
            permit.answered();
            None
        };
        Self {
            exchange: None,
            progress: permit.progress(),
            sample: LengthSample::default(),
            awaits: call.facts().stream,
            call,
            permit: Some((permit, release_guard)),
            cancel_signal,
            body: None,
            waits: true,
            ended: None,
        }
    }

    pub(super) fn permit(&mut self) -> Option<&mut Permit> {
        self.permit.as_mut().map(|(permit, _)| permit)
    }

    /// Until the call is called back, and why; never, where its target does not do that, or where it could not be made again.
    pub(super) fn cancelled(&mut self) -> impl Future<Output = Cancellation> + use<> {
        let signal = self.cancel_signal.take();
        async move {
            match signal {
                Some(signal) => signal.cancelled().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The head of an answer came, or will not come.
    pub(super) fn answered(&mut self, result: &AttemptResult, outcome: &AttemptOutcome) {
        let Some((permit, _)) = &mut self.permit else { return };
        permit.answered();
        self.waits = false;
        self.exchange = result.as_ref().ok().and_then(|response| response.extensions().get().cloned());
        self.ended = Ended::from_outcome(outcome, false, || is_by_rate(permit, result, outcome));
        if self.ended.is_some() {
            return;
        }
        if self.awaits && !matches!(outcome, AttemptOutcome::Accepted { streams: true }) {
            self.awaits = false;
            permit.unseen();
        }
        // The head was held back for the first event, which may have been a token.
        self.look();
    }

    /// Tells the limit of the first token, as soon as it is there, and the estimator how long the answer is at least.
    fn look(&mut self) {
        let (Some((permit, _)), Some(exchange)) = (&mut self.permit, &self.exchange) else { return };
        let produced = exchange.tokens();
        self.progress.reached(produced);
        let expected = self.call.target().expected();
        expected.observe(self.call.facts(), self.call.tenant(), &mut self.sample, produced);
        if self.awaits && exchange.has_token() {
            self.awaits = false;
            permit.first_token();
        }
    }

    /// An answer broke off: that speaks against the replica that it came from.
    fn broke(&mut self, error: &Error) {
        let outcome = outcome_of_error(error);
        if self.ended.is_none() {
            self.ended = Ended::from_outcome(&outcome, self.has_token(), || false);
        }
        if let Some((permit, _)) = &mut self.permit
            && permit.placed().is_some()
            && let Some(fault) = Fault::from_outcome(&outcome, true)
        {
            permit.failed_there(fault);
        }
    }

    fn has_token(&self) -> bool {
        self.exchange.as_ref().is_some_and(ExchangeRecord::has_token)
    }

    /// How the attempt ended, by what was seen of its body. `over`: the body has ended by itself.
    fn end_of_body(&self, over: bool) -> Ended {
        if let Some(exchange) = &self.exchange {
            let seen = exchange.seen();
            if seen.is_complete {
                let produced = exchange.tokens();
                return Ended::Completed {
                    output: seen.usage.map_or(produced, |usage| usage.output.max(produced)),
                };
            }
            if seen.is_failed || over {
                return Ended::Failed;
            }
        }
        // Otherwise it was the reader, and not the upstream, that was waited for.
        let is_overdue = self.waits && self.call.is_enforced() && self.call.deadline() <= clock::now();
        if is_overdue && !self.has_token() { Ended::TimedOut } else { Ended::Cancelled }
    }

    pub(super) fn over(mut self, body: ResponseBody) -> Self {
        if body.is_end_stream() {
            self.release(true);
        }
        self.body = Some(body);
        self
    }

    /// The exchange goes first, then the slot: whoever gets the slot must not find the upstream still busy with us.
    fn release(&mut self, over: bool) {
        self.body = None;
        self.hand_back(over);
    }

    /// The slot alone, where the provider's own end was seen: nothing runs upstream any more, whatever the connection does.
    pub(super) fn hand_back_if_answered(&mut self) {
        if self.exchange.as_ref().is_some_and(|exchange| exchange.seen().is_complete) {
            self.hand_back(false);
        }
    }

    /// `over`: the body has ended by itself.
    fn hand_back(&mut self, over: bool) {
        self.look();
        if let Some((mut permit, release_guard)) = self.permit.take() {
            permit.ended(self.ended.unwrap_or_else(|| self.end_of_body(over)));
            if let Some(exchange) = &self.exchange {
                settle(&self.call, &mut permit, exchange, &mut self.sample);
            }
            release_guard.keep(permit);
            self.call.attempt_released();
        }
    }
}

/// Whether a 429 was for a rate: the provider says when to come back, or that nothing is left, or by
/// our own budgets nothing is. A limit on how many run at once knows of no time.
fn is_by_rate(permit: &Permit, result: &AttemptResult, outcome: &AttemptOutcome) -> bool {
    let shows_nothing_left = |result: &AttemptResult| {
        let response = result.as_ref().ok();
        response
            .is_some_and(|response| RateHeaders::read(response.headers(), clock::wall()).shows_nothing_left())
    };
    outcome.retry_after().is_some() || shows_nothing_left(result) || permit.is_spent()
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(false);
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.waits = true;
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let over = body.is_end_stream();
        this.look();
        let frame = ready!(polled);
        this.waits = false;
        if let (Some(Ok(_)), Some((permit, _))) = (&frame, &this.permit) {
            permit.alive();
        }
        if let Some(Err(error)) = &frame {
            this.broke(error);
        }
        let frame = frame.map(|frame| frame.map_err(|error| this.call.happened(error)));
        // Many readers never ask for the end once they have all that was announced.
        if !matches!(frame, Some(Ok(_))) || over {
            this.release(true);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ResponseBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), ResponseBody::size_hint)
    }
}
