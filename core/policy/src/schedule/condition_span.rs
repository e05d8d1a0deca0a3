//! [`Span`] records since when a condition has been true. [`Gap`] measures for how long a waiting
//! call could have been dispatched and was not.

use std::time::{Duration, Instant};

/// Records since when a condition has been true without a break. A condition that becomes false and
/// true again at the same moment counts as unbroken: a slot that is given to another call at once
/// was never free.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// When the condition last became true, or `None` if it never was.
    began: Option<Instant>,
    /// When the condition became false, or `None` if it is true or was never true.
    ended: Option<Instant>,
}

impl Span {
    /// Sets whether the condition is true from `now` on.
    pub(super) fn set(&mut self, now: Instant, holds: bool) {
        if !holds {
            if self.ended.is_none() {
                self.ended = Some(now);
            }
            return;
        }
        if self.ended.take().is_some_and(|ended| ended < now) || self.began.is_none() {
            self.began = Some(now);
        }
    }

    /// Returns since when the condition has been true, or `None` if it is false.
    pub(super) fn since(&self) -> Option<Instant> {
        self.began.filter(|_| self.ended.is_none())
    }
}

/// The total time in which a waiting call could have been dispatched and was not.
///
/// It is zero if the driver calls [`Scheduler::next`](super::Scheduler::next) after each event.
#[derive(Debug, Default)]
pub(super) struct Gap {
    /// Since when a waiting call could have been dispatched, or `None` if none can be.
    since: Option<Instant>,
    pub(super) total: Duration,
}

impl Gap {
    /// Starts a gap at `now` if `gap` is `true`, that is, if a waiting call could be dispatched.
    /// Does nothing if a gap has started already.
    pub(super) fn watch(&mut self, now: Instant, gap: bool) {
        if gap {
            self.since.get_or_insert(now);
        }
    }

    /// Ends the current gap, if there is one, and adds its length to `total`.
    pub(super) fn stop(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.total += now.saturating_duration_since(since);
        }
    }
}
