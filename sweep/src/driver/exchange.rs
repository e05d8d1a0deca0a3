//! One exchange with the server, from sending the request to its end.

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

/// An open exchange. Ends exactly once: with its body, with a failure, or by being dropped.
pub(super) struct Exchange {
    hub: Arc<EventHub>,
    call: Arc<CallState>,
    hold: Option<SpendReservation>,
    sent_at: f64,
    position: usize,
    head: Option<ResponseState>,
    stream: StreamTimes,
    over: bool,
}

struct ResponseState {
    status: StatusCode,
    headers: HeaderMap,
    rates: ReportedRates,
    observer: Observer,
    events: u64,
    last_event_at: Option<f64>,
    /// First bytes of an error response.
    said: Vec<u8>,
    /// Classification of an error event.
    verdict: Option<Verdict>,
    terminal: bool,
}

/// How an exchange ended.
enum ExchangeEnd {
    /// The body ended normally.
    Whole,
    /// The connection failed.
    Broke(ErrorKind),
    /// The caller dropped the exchange.
    Dropped,
}

impl Exchange {
    pub(super) fn open(hub: Arc<EventHub>, call: Arc<CallState>, hold: SpendReservation) -> Self {
        let (sent_at, position) = hub.open();
        call.sent(sent_at, position);
        Self {
            hub,
            call,
            hold: Some(hold),
            sent_at,
            position,
            head: None,
            stream: StreamTimes::default(),
            over: false,
        }
    }

    pub(super) fn answered(&mut self, head: &Parts) {
        self.head = Some(ResponseState {
            status: head.status,
            headers: head.headers.clone(),
            rates: failure::rates(&head.headers),
            observer: Observer::new(self.hub.dialect, &head.headers, true),
            events: 0,
            last_event_at: None,
            said: Vec::new(),
            verdict: None,
            terminal: false,
        });
    }

    pub(super) fn chunk(&mut self, bytes: &[u8]) {
        let Some(head) = &mut self.head else { return };
        if !head.status.is_success() {
            let room = MAX_ERROR_BYTES.saturating_sub(head.said.len());
            head.said.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
            return;
        }
        let now = self.hub.clock.now();
        let deltas = head.observer.deltas();
        let (mut verdict, mut terminal) = (None, false);
        head.observer.push(bytes, |signal| match signal {
            Signal::Error(said) => verdict = Some(said),
            Signal::Terminal => terminal = true,
            Signal::FirstToken | Signal::Usage(_) => {}
        });
        head.terminal |= terminal;
        if let Some(verdict) = verdict {
            head.verdict = Some(verdict);
            head.said.extend_from_slice(bytes.get(..MAX_ERROR_BYTES.min(bytes.len())).unwrap_or_default());
        }
        if head.observer.deltas() > deltas {
            self.stream.first_at.get_or_insert(now);
            self.stream.last_at = Some(now);
        }
        if self.stream.first_at.is_some() && head.observer.events() > head.events {
            if let Some(last) = head.last_event_at {
                let pause = self.stream.longest_pause.get_or_insert(0.0);
                *pause = pause.max(now - last);
            }
            head.last_event_at = Some(now);
        }
        head.events = head.observer.events();
    }

    /// Records that the body ended.
    pub(super) fn finish(&mut self) {
        if let Some(head) = &mut self.head
            && head.status.is_success()
        {
            let (mut verdict, mut terminal) = (None, false);
            head.observer.finish(|signal| match signal {
                Signal::Error(said) => verdict = Some(said),
                Signal::Terminal => terminal = true,
                Signal::FirstToken | Signal::Usage(_) => {}
            });
            head.terminal |= terminal;
            head.verdict = head.verdict.take().or(verdict);
        }
        self.end(ExchangeEnd::Whole);
    }

    pub(super) fn broke(&mut self, kind: ErrorKind) {
        self.end(ExchangeEnd::Broke(kind));
    }

    fn end(&mut self, how: ExchangeEnd) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let (failure, last_word) = self.judge(&how);
        self.stream.usage = self.head.as_ref().and_then(|head| head.observer.usage());
        self.settle(&how, failure.as_ref());
        let given_up = matches!(how, ExchangeEnd::Dropped) && self.call.is_given_up();
        let status = self.head.as_ref().map(|head| head.status.as_u16());
        let rates = self.head.as_ref().map_or_else(ReportedRates::default, |head| head.rates);
        let (call, stream, sent_at, position) = (&self.call, self.stream, self.sent_at, self.position);
        self.hub.close(|ended_at| {
            call.ended(ended_at, status, failure.clone(), stream);
            if given_up {
                DriverEvent::GivenUp
            } else {
                DriverEvent::Attempt(AttemptObservation { sent_at, ended_at, position, failure, rates })
            }
        });
        if let Some(told) = last_word {
            self.hub.send(DriverEvent::Refused(told));
        }
    }

    /// Returns the failure, if any, and the server's message if it rejects all further calls.
    fn judge(&self, how: &ExchangeEnd) -> (Option<AttemptFailure>, Option<String>) {
        let Some(head) = &self.head else {
            let kind = match how {
                ExchangeEnd::Broke(kind) => *kind,
                ExchangeEnd::Whole | ExchangeEnd::Dropped => ErrorKind::FirstTokenTimeout,
            };
            return (Some(failure::of_error(kind, false)), None);
        };
        let judged = if !head.status.is_success() {
            let (failure, verdict) = failure::by_status(head.status, &head.headers, &head.said);
            Some((failure, verdict))
        } else {
            head.verdict.clone().map(|verdict| (failure::of_verdict(&verdict, &head.said), verdict))
        };
        if let Some((failure, verdict)) = judged {
            let last = failure::is_final(&verdict).then(|| {
                let code = verdict.code.as_deref().map(|code| format!(", {code}")).unwrap_or_default();
                format!("{} {}{code}", verdict.status, verdict.class.as_str())
            });
            return (Some(failure), last);
        }
        let failure = match how {
            ExchangeEnd::Broke(kind) => Some(failure::of_error(*kind, true)),
            ExchangeEnd::Dropped if head.terminal => None,
            ExchangeEnd::Dropped => Some(failure::plain(FailureCause::Timeout)),
            ExchangeEnd::Whole => match head.observer.end() {
                End::Complete => None,
                End::Failed => Some(failure::plain(FailureCause::Server)),
                End::Truncated => Some(failure::plain(FailureCause::Truncated)),
            },
        };
        (failure, None)
    }

    /// Settles the cost. An exchange that may have run but was not counted costs its reservation.
    fn settle(&mut self, how: &ExchangeEnd, failure: Option<&AttemptFailure>) {
        let Some(hold) = self.hold.take() else { return };
        let nothing_ran = match &self.head {
            None => matches!(how, ExchangeEnd::Broke(ErrorKind::Connect | ErrorKind::ConnectTimeout)),
            Some(head) => {
                let turned_away = failure
                    .is_some_and(|f| matches!(f.cause, FailureCause::Limited | FailureCause::Overloaded));
                !head.status.is_success() || (turned_away && head.observer.deltas() == 0)
            }
        };
        match self.stream.usage {
            Some(usage) => hold.counted(usage.input, usage.cached_input, usage.output),
            None if nothing_ran => hold.refused(),
            None => drop(hold),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(ExchangeEnd::Dropped);
    }
}
