//! A response body that holds the permit until the response ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::apply_outcome::settle;
use super::read_ahead::readable_ahead;
use crate::adaptive::Ended;
use crate::admission::{Permit, ReleaseGuard};
use crate::body::ResponseBody;
use crate::call::{AttemptResult, Call, ExchangeRecord, outcome_of_error};
use crate::clock;
use crate::error::Error;
use crate::kv::Progress;
use crate::placement::Fault;
use tidegate_policy::outcome::AttemptOutcome;
use tidegate_protocol::RateHeaders;
use tidegate_tokens::LengthSample;

/// Holds the permit of an attempt until its response body ends. The slot is released when the body
/// ends or fails, or when this value is dropped.
pub(super) struct PermitBody {
    call: Call,
    /// The permit, and the guard that delays its release. `None` once the slot was released.
    permit: Option<(Permit, ReleaseGuard)>,
    /// The inner body. `None` before the response has begun and after it has ended.
    body: Option<ResponseBody>,
    /// The record of the exchange. `None` before the response has begun, and for attempts that
    /// failed without one.
    exchange: Option<ExchangeRecord>,
    /// The counter of output tokens, which this body updates and the scheduler reads.
    progress: Progress,
    /// What the estimator has learned so far about the length of the response.
    sample: LengthSample,
    /// `true` while the scheduler counts the attempt as awaiting its first token.
    awaits_token: bool,
    /// `true` if the last poll returned no frame, so that the body waits for the upstream and not
    /// for its reader.
    awaits_upstream: bool,
    /// How the attempt ended, for the adaptive limit. `None` as long as neither the result of the
    /// attempt nor an error of its body determines it.
    ended: Option<Ended>,
}

impl PermitBody {
    pub(super) fn new(call: Call, permit: Permit, release_guard: ReleaseGuard) -> Self {
        Self {
            exchange: None,
            progress: permit.progress(),
            sample: LengthSample::default(),
            awaits_token: call.facts().stream,
            call,
            permit: Some((permit, release_guard)),
            body: None,
            awaits_upstream: true,
            ended: None,
        }
    }

    /// Returns the permit. `None` if the slot was released.
    pub(super) fn permit(&mut self) -> Option<&mut Permit> {
        self.permit.as_mut().map(|(permit, _)| permit)
    }

    /// Records the result of the attempt when the response head has arrived or the attempt has
    /// failed. If the attempt was accepted, also reports the tokens that have already arrived.
    pub(super) fn on_result(&mut self, result: &AttemptResult, outcome: &AttemptOutcome) {
        let Some((permit, _)) = &mut self.permit else { return };
        permit.on_response_head();
        self.awaits_upstream = false;
        self.exchange = result.as_ref().ok().and_then(|response| response.extensions().get().cloned());
        self.ended = outcome.ended(false, || is_by_rate(permit, result, outcome));
        if self.ended.is_some() {
            return;
        }
        if self.awaits_token && !matches!(outcome, AttemptOutcome::Accepted { streams: true }) {
            self.awaits_token = false;
            permit.mark_unobservable();
        }
        // The stream layer has held the response back until its first event, which may be a token.
        self.follow();
    }

    /// Reports what has changed in the record of the exchange: the first token and the number of
    /// tokens to the scheduler, and the length of the response to the estimator.
    fn follow(&mut self) {
        let (Some((permit, _)), Some(exchange)) = (&mut self.permit, &self.exchange) else { return };
        let tokens = exchange.deltas();
        self.progress.set(tokens);
        let estimates = self.call.target().estimates();
        estimates.observe(self.call.facts(), self.call.tenant(), &mut self.sample, tokens);
        if self.awaits_token && exchange.has_token() {
            self.awaits_token = false;
            permit.on_first_token();
        }
    }

    /// Records an error of the body: how the attempt ended for the adaptive limit, and the failure
    /// for the replica.
    fn on_error(&mut self, error: &Error) {
        let outcome = outcome_of_error(error);
        if self.ended.is_none() {
            self.ended = outcome.ended(self.has_token(), || false);
        }
        if let Some((permit, _)) = &mut self.permit
            && permit.placed().is_some()
            && let Some(fault) = Fault::from_outcome(&outcome, true)
        {
            permit.on_replica_fault(fault);
        }
    }

    /// Returns `true` if the first token has arrived.
    fn has_token(&self) -> bool {
        self.exchange.as_ref().is_some_and(ExchangeRecord::has_token)
    }

    /// Returns how the attempt ended for the adaptive limit if no error has determined it.
    /// `is_over` is `true` if the body ended, and `false` if it was dropped or is still open.
    fn ended(&self, is_over: bool) -> Ended {
        if let Some(exchange) = &self.exchange {
            let seen = exchange.seen();
            if seen.is_complete {
                let tokens = exchange.deltas();
                let output = seen.usage.map_or(tokens, |usage| usage.output.max(tokens));
                // With 0 tokens, the limit does not compute the time between the tokens of a
                // stream.
                let is_known = !self.call.facts().stream || exchange.was_read_promptly(clock::now());
                return Ended::Completed { output: if is_known { output } else { 0 } };
            }
            if seen.is_failed || is_over {
                return Ended::Failed;
            }
        }
        let is_overdue = self.call.is_enforced() && self.call.deadline() <= clock::now();
        if is_overdue && self.awaits_upstream && !self.has_token() {
            Ended::DeadlinePassed
        } else {
            Ended::Cancelled
        }
    }

    /// Returns a body that holds the permit until `body` ends. If all of `body` has arrived,
    /// releases the slot at once, and returns `body` itself.
    pub(super) fn into_response_body(mut self, body: ResponseBody) -> ResponseBody {
        if body.has_arrived() {
            self.end(true);
            return body;
        }
        self.body = Some(body);
        readable_ahead(self)
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// Drops the inner body, and only then releases the slot, so that the upstream gets no other
    /// call while it is still busy with this one. `is_over` as for [`Self::ended`].
    fn end(&mut self, is_over: bool) {
        self.body = None;
        self.release(is_over);
    }

    /// Releases the slot if the event that ends the provider's stream was received, even if the
    /// connection stays open. The upstream no longer works on the call then.
    pub(super) fn release_if_complete(&mut self) {
        if self.exchange.as_ref().is_some_and(|exchange| exchange.seen().is_complete) {
            self.release(false);
        }
    }

    /// Releases the slot and corrects the charges of the attempt. Does nothing if the slot was
    /// already released. `is_over` as for [`Self::ended`].
    fn release(&mut self, is_over: bool) {
        self.follow();
        if let Some((mut permit, release_guard)) = self.permit.take() {
            let ended = self.ended.unwrap_or_else(|| self.ended(is_over));
            if ended == Ended::DeadlinePassed && self.exchange.is_none() {
                permit.on_unanswered();
            }
            permit.set_ended(ended);
            if let Some(exchange) = &self.exchange {
                settle(&self.call, &mut permit, exchange, &mut self.sample);
            }
            release_guard.keep(permit);
            self.call.update_attempt(|attempt| attempt.released_at = Some(clock::now()));
        }
    }
}

/// Returns `true` if a 429 is caused by a rate limit and not by a concurrency limit. This is the
/// case if the response has a retry time or exhausted rate headers, or if the gate's own rate
/// budgets are exhausted.
fn is_by_rate(permit: &Permit, result: &AttemptResult, outcome: &AttemptOutcome) -> bool {
    let shows_nothing_left = || {
        let headers = result.as_ref().ok().map(|response| response.headers());
        headers.is_some_and(|headers| RateHeaders::read(headers, clock::wall()).has_exhausted())
    };
    outcome.retry_after().is_some() || shows_nothing_left() || permit.is_budget_exhausted()
}

impl Drop for PermitBody {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Body for PermitBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.awaits_upstream = true;
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let is_over = body.is_end_stream();
        this.follow();
        let frame = ready!(polled);
        this.awaits_upstream = false;
        if let (Some(Ok(_)), Some((permit, _))) = (&frame, &this.permit) {
            permit.on_alive();
        }
        if let Some(Err(error)) = &frame {
            this.on_error(error);
        }
        let frame = frame.map(|frame| frame.map_err(|error| this.call.locate_error(error)));
        // Many readers do not poll for the end once they have read the announced length.
        if !matches!(frame, Some(Ok(_))) || is_over {
            this.end(true);
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
