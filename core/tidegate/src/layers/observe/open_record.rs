//! The open record of a call in progress, which is added to the metrics and the call log when the
//! call ends.

use std::sync::Arc;

use super::CallLog;
use crate::metrics::Outcome;
use http::Response;

use crate::active_calls::{Active, ActiveCall};
use crate::call::{Attempt, Call, ExchangeRecord, usage_of};
use crate::clock;
use crate::error::{Error, ErrorKind};

/// The open record of a call in progress. Dropping it adds the call to the metrics and, if the call
/// runs a model, to the call log. If no outcome was set by then, the call counts as completed if
/// its response was received completely, and otherwise as cancelled.
pub(crate) struct OpenRecord {
    call: Call,
    log: Arc<CallLog>,
    /// The outcome of the call. `None` until it is known.
    outcome: Option<Outcome>,
    /// The record of the exchange that produced the response. `None` if there was no response.
    exchange: Option<ExchangeRecord>,
    _active: ActiveCall,
}

impl OpenRecord {
    /// Opens the record of a call. `active` counts the call as in progress until the record is
    /// dropped.
    pub(crate) fn open(call: Call, log: Arc<CallLog>, active: &Arc<Active>) -> Self {
        Self { _active: active.enter(call.clone()), call, log, outcome: None, exchange: None }
    }

    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// Stores the record of the exchange, which is attached to `response`.
    pub(super) fn on_response<B>(&mut self, response: &Response<B>) {
        self.exchange = response.extensions().get().cloned();
    }

    /// Returns `true` if the response contained an error event.
    pub(super) fn is_failed(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.seen().is_failed)
    }

    /// Sets how the call ended.
    pub(crate) fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Records that the call ended with `error`. Also counts the reason if admission rejected the
    /// call.
    pub(crate) fn failed(&mut self, error: &Error) {
        self.set_outcome(outcome_of(error));
        if let Some(reason) = error.reason() {
            self.call.metrics().on_refused(reason);
        }
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let now = clock::now();
        let call = &self.call;
        let attempts = call.take_attempts();
        let last = attempts.last();
        let of_response = || self.exchange.as_ref().and_then(|exchange| exchange.seen().usage);
        let usage = usage_of(&attempts).or_else(of_response);
        let outcome = self.outcome.unwrap_or(match last {
            // The reader got the whole response, and did not wait for the end of the connection.
            Some(last) if last.seen().is_complete => Outcome::Completed,
            // A client closes a stream once it has read an error event.
            _ if self.is_failed() => Outcome::Failed,
            _ => Outcome::Cancelled,
        });
        let (metrics, lane) = (call.metrics(), call.lane());
        metrics.on_ended(outcome);
        let first_token = last.and_then(Attempt::first_token_at);
        let ttft = first_token.map(|at| at.saturating_duration_since(call.queued_at()));
        if let Some(ttft) = ttft.filter(|_| call.is_inference()) {
            metrics.ttft(lane, ttft);
        }
        if let Some(exchange) = last.and_then(|last| last.exchange.as_ref()).filter(|_| call.is_inference())
            && let Some(first) = exchange.first_token_at()
        {
            let deltas = exchange.deltas();
            call.target().metrics().upstream_ttft(first.saturating_duration_since(exchange.sent_at()));
            let tokens = usage.map_or(deltas, |usage| usage.output.max(deltas));
            if outcome == Outcome::Completed && tokens > 1 && exchange.was_read_promptly(now) {
                let decode = now.saturating_duration_since(first).as_secs_f64();
                call.target().metrics().tpot(decode / (tokens - 1) as f64);
            }
        }
        if call.is_inference() && outcome == Outcome::Completed {
            let duration = now.saturating_duration_since(call.queued_at());
            let config = call.target().config();
            let of_lane = config.lanes.get(lane as usize).and_then(|lane| lane.ttft);
            let objective = of_lane.or(config.ttft);
            // A call without a first token, such as one that does not stream, is judged by its
            // duration.
            let met = objective.is_some_and(|objective| ttft.unwrap_or(duration) <= objective);
            metrics.on_completed(lane, duration, met);
        }
        if let Some(usage) = usage {
            metrics.tokens(usage.input, usage.output);
        }
        if call.is_inference() {
            self.log.push(call, outcome, &attempts, usage, now);
        }
    }
}

/// Returns the outcome of a call that ended with this error.
pub(super) fn outcome_of(error: &Error) -> Outcome {
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
