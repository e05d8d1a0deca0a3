//! Descriptions of a call for the adaptive limit: its sample while it is in flight, and how it
//! ended.

use std::time::{Duration, Instant};

use tidegate_protocol::Class;
use tidegate_share::Ended;

use super::latency_class::is_streaming;
use crate::ErrorKind;
use crate::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};

/// When a call was sent, and how many calls were in flight then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) at: Instant,
    /// Number of calls in flight just after the call was sent, including the call itself.
    pub(super) in_flight: usize,
    /// Number of the call among the recent calls.
    pub(super) number: u64,
}

/// A call in flight. Pass it once to [`Limit::on_ended`](super::Limit::on_ended).
#[derive(Debug)]
#[must_use = "a call that never ends is counted as in flight for ever"]
pub struct Sample {
    /// Index of the call's latency class: see
    /// [`class_of`](super::latency_class::class_of).
    pub(super) class: usize,
    /// Prompt tokens, or 0 if unknown.
    pub(super) input: u64,
    /// Expected output tokens, or 0 if unknown.
    pub(super) output: u64,
    /// Number that identifies the call among the awaiting calls of its class. `None` after its
    /// first token or its end, and for calls that cannot be overdue.
    pub(super) queue_number: Option<u64>,
    /// Whether the call was already counted as evidence.
    pub(super) judged: bool,
    pub(super) sent: Sent,
    /// Work before the first token, in tokens of prefill. Zero if the call does not stream.
    pub(super) work: u64,
    /// Sum of that work over all calls that awaited their first token when this one was sent,
    /// itself included.
    pub(super) awaiting_work: u64,
    /// Time of the first token, or `None` if none was observed.
    pub(super) first_token_at: Option<Instant>,
}

impl Sample {
    /// Returns the work before the first token, in tokens of prefill. Zero if the call does not
    /// stream.
    pub(crate) fn first_token_work(&self) -> u64 {
        self.work
    }

    /// Returns `true` if the call streams and its first token has not arrived.
    pub(super) fn awaits_first_token(&self) -> bool {
        is_streaming(self.class) && self.first_token_at.is_none()
    }

    /// Adds `late_by` to the times of the call, at most up to `now`, because its next event is
    /// reported late by that time. Latencies are then exact. See [`Sample::shift_earlier`].
    pub(crate) fn shift_later(&mut self, now: Instant, late_by: Duration) {
        for at in [Some(&mut self.sent.at), self.first_token_at.as_mut()].into_iter().flatten() {
            *at = at.checked_add(late_by).map_or(now, |at| at.min(now));
        }
    }

    /// Subtracts `late_by` from the times of the call, which undoes [`Sample::shift_later`] after
    /// the event.
    pub(crate) fn shift_earlier(&mut self, late_by: Duration) {
        for at in [Some(&mut self.sent.at), self.first_token_at.as_mut()].into_iter().flatten() {
            *at = at.checked_sub(late_by).unwrap_or(*at);
        }
    }

    /// Returns the seconds from the sending of the call to `now`.
    pub(super) fn seconds_until(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.sent.at).as_secs_f64()
    }
}

impl AttemptOutcome {
    /// Returns how the attempt ended, or `None` if it was accepted, so that its response continues.
    ///
    /// `has_token` is `true` if the first token has arrived: a timeout after it is not evidence of
    /// overload. `is_by_rate` is called for a 429 only. It returns `true` if the 429 is about a
    /// rate, and `false` if it is about too many concurrent calls.
    pub fn ended(&self, has_token: bool, is_by_rate: impl FnOnce() -> bool) -> Option<Ended> {
        use FailureCause::{CallerTimeout, Local};

        match self {
            Self::Accepted { .. } => None,
            Self::Rejected(verdict) => Some(match verdict.class {
                Class::RateLimited => Ended::Limited { by_rate: is_by_rate() },
                Class::Overloaded => Ended::Overloaded,
                Class::Timeout => Ended::TimedOut,
                _ => Ended::Failed,
            }),
            Self::Failed(ExchangeFailure { cause: CallerTimeout | Local, .. }) => Some(Ended::Failed),
            Self::Failed(failure) => Some(match failure.kind {
                ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout if !has_token => Ended::TimedOut,
                _ => Ended::Failed,
            }),
            Self::Cancelled(_) => Some(Ended::Cancelled),
        }
    }
}
