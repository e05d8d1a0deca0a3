//! One exchange with the server, from sending the request to the end of the response.

use std::sync::Arc;

use http::response::Parts;
use http::{HeaderMap, StatusCode};
use tidegate::ErrorKind;
use tidegate::protocol::{End, Observer, Signal, Verdict};

use super::call_state::{CallState, StreamTimes};
use super::event_hub::{DriverEvent, EventHub};
use super::failure::{self, MAX_ERROR_BYTES};
use crate::observation::{AttemptFailure, AttemptObservation, FailureCause, ReportedRates};
use crate::spend::SpendReservation;

/// An exchange with the server that is still open. It ends when the response body ends, when the
/// connection fails, or when the value is dropped, whichever is first.
pub(super) struct Exchange {
    hub: Arc<EventHub>,
    call: Arc<CallState>,
    reservation: Option<SpendReservation>,
    sent_at: f64,
    position: usize,
    response: Option<ResponseState>,
    stream: StreamTimes,
    is_ended: bool,
}

struct ResponseState {
    status: StatusCode,
    headers: HeaderMap,
    rates: ReportedRates,
    observer: Observer,
    events: u64,
    last_event_at: Option<f64>,
    /// First bytes of an error response, at most [`MAX_ERROR_BYTES`].
    error_bytes: Vec<u8>,
    /// Classification of an error event in the stream, or `None` without one.
    verdict: Option<Verdict>,
    terminal: bool,
}

/// How an exchange of a request and its response ended.
enum ExchangeEnd {
    /// The whole body was read.
    Complete,
    /// The connection failed with an error of this kind.
    Failed(ErrorKind),
    /// The exchange was dropped before its end.
    Dropped,
}

impl Exchange {
    pub(super) fn open(hub: Arc<EventHub>, call: Arc<CallState>, reservation: SpendReservation) -> Self {
        let (sent_at, position) = hub.open();
        call.sent(sent_at, position);
        Self {
            hub,
            call,
            reservation: Some(reservation),
            sent_at,
            position,
            response: None,
            stream: StreamTimes::default(),
            is_ended: false,
        }
    }

    pub(super) fn on_response(&mut self, response: &Parts) {
        self.response = Some(ResponseState {
            status: response.status,
            headers: response.headers.clone(),
            rates: failure::reported_rates(&response.headers),
            observer: Observer::new(self.hub.dialect, &response.headers, true),
            events: 0,
            last_event_at: None,
            error_bytes: Vec::new(),
            verdict: None,
            terminal: false,
        });
    }

    pub(super) fn on_bytes(&mut self, bytes: &[u8]) {
        let Some(response) = &mut self.response else { return };
        if !response.status.is_success() {
            let room = MAX_ERROR_BYTES.saturating_sub(response.error_bytes.len());
            response.error_bytes.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
            return;
        }
        let now = self.hub.clock.now();
        let deltas = response.observer.deltas();
        let (mut verdict, mut terminal) = (None, false);
        response.observer.push(bytes, |signal| match signal {
            Signal::Error(said) => verdict = Some(said),
            Signal::Terminal => terminal = true,
            Signal::FirstToken | Signal::Usage(_) => {}
        });
        response.terminal |= terminal;
        if let Some(verdict) = verdict {
            response.verdict = Some(verdict);
            response
                .error_bytes
                .extend_from_slice(bytes.get(..MAX_ERROR_BYTES.min(bytes.len())).unwrap_or_default());
        }
        self.stream.deltas = response.observer.deltas();
        if self.stream.deltas > deltas {
            self.stream.first_at.get_or_insert(now);
            self.stream.last_at = Some(now);
        }
        if self.stream.first_at.is_some() && response.observer.events() > response.events {
            if let Some(last) = response.last_event_at {
                let pause = self.stream.longest_pause.get_or_insert(0.0);
                *pause = pause.max(now - last);
            }
            response.last_event_at = Some(now);
        }
        response.events = response.observer.events();
    }

    /// Ends the exchange. Called when the response body was read to its end.
    pub(super) fn on_end(&mut self) {
        if let Some(response) = &mut self.response
            && response.status.is_success()
        {
            let (mut verdict, mut terminal) = (None, false);
            response.observer.finish(|signal| match signal {
                Signal::Error(said) => verdict = Some(said),
                Signal::Terminal => terminal = true,
                Signal::FirstToken | Signal::Usage(_) => {}
            });
            response.terminal |= terminal;
            response.verdict = response.verdict.take().or(verdict);
        }
        self.end(ExchangeEnd::Complete);
    }

    pub(super) fn on_error(&mut self, kind: ErrorKind) {
        self.end(ExchangeEnd::Failed(kind));
    }

    fn end(&mut self, how: ExchangeEnd) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let (failure, rejection) = self.classify(&how);
        self.stream.usage = self.response.as_ref().and_then(|response| response.observer.usage());
        self.settle(&how, failure.as_ref());
        let cancelled_by_sweep = matches!(how, ExchangeEnd::Dropped) && self.call.is_cancelled();
        let status = self.response.as_ref().map(|response| response.status.as_u16());
        let rates = self.response.as_ref().map_or_else(ReportedRates::default, |response| response.rates);
        let (call, stream, sent_at, position) = (&self.call, self.stream, self.sent_at, self.position);
        self.hub.close(|ended_at| {
            call.ended(ended_at, status, failure.clone(), stream);
            if cancelled_by_sweep {
                DriverEvent::Cancelled
            } else {
                DriverEvent::Attempt(AttemptObservation { sent_at, ended_at, position, failure, rates })
            }
        });
        if let Some(message) = rejection {
            self.hub.send(DriverEvent::Refused(message));
        }
    }

    /// Returns two values: the failure of the exchange, or `None` if it was answered completely;
    /// and, if the server rejects every further call with the API key, the status and error code,
    /// otherwise `None`.
    fn classify(&self, how: &ExchangeEnd) -> (Option<AttemptFailure>, Option<String>) {
        let Some(response) = &self.response else {
            let kind = match how {
                ExchangeEnd::Failed(kind) => *kind,
                ExchangeEnd::Complete | ExchangeEnd::Dropped => ErrorKind::FirstTokenTimeout,
            };
            return (Some(failure::from_error(kind, false)), None);
        };
        let rejected = if !response.status.is_success() {
            let (failure, verdict) =
                failure::from_status(response.status, &response.headers, &response.error_bytes);
            Some((failure, verdict))
        } else {
            response
                .verdict
                .clone()
                .map(|verdict| (failure::from_verdict(&verdict, &response.error_bytes), verdict))
        };
        if let Some((failure, verdict)) = rejected {
            let last = failure::is_final(&verdict).then(|| {
                let code = verdict.code.as_deref().map(|code| format!(", {code}")).unwrap_or_default();
                format!("{} {}{code}", verdict.status, verdict.class.as_str())
            });
            return (Some(failure), last);
        }
        let failure = match how {
            ExchangeEnd::Failed(kind) => Some(failure::from_error(*kind, true)),
            ExchangeEnd::Dropped if response.terminal => None,
            ExchangeEnd::Dropped => Some(failure::without_details(FailureCause::Timeout)),
            ExchangeEnd::Complete => match response.observer.end() {
                End::Complete => None,
                End::Failed => Some(failure::without_details(FailureCause::Server)),
                End::Truncated => Some(failure::without_details(FailureCause::Truncated)),
            },
        };
        (failure, None)
    }

    /// Settles the token reservation of the exchange. If the response is complete and the server
    /// counted its tokens, charges them. Otherwise, charges nothing if the server did not run the
    /// request, and all reserved tokens if it may have run it: a count that came with the first
    /// event does not include the output.
    fn settle(&mut self, how: &ExchangeEnd, failure: Option<&AttemptFailure>) {
        let Some(reservation) = self.reservation.take() else { return };
        let nothing_ran = match &self.response {
            None => matches!(how, ExchangeEnd::Failed(ErrorKind::Connect | ErrorKind::ConnectTimeout)),
            Some(response) => {
                let is_rejected = failure
                    .is_some_and(|f| matches!(f.cause, FailureCause::Limited | FailureCause::Overloaded));
                !response.status.is_success() || (is_rejected && response.observer.deltas() == 0)
            }
        };
        match self.stream.usage {
            Some(usage) if failure.is_none() => {
                reservation.settle_counted(usage.input, usage.cached_input, usage.output);
            }
            _ if nothing_ran => reservation.release(),
            _ => drop(reservation),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(ExchangeEnd::Dropped);
    }
}
