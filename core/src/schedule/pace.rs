//! Two small observations: how fast slots come free, and whether a free one was ever left idle.

use std::time::{Duration, Instant};

/// How fast slots come free: what `retry_after` of a refusal is estimated from.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Smoothed seconds between releases.
    interval: Option<f64>,
}

impl Pace {
    pub(super) fn released(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let seen = now.saturating_duration_since(last).as_secs_f64();
            self.interval = Some(self.interval.map_or(seen, |smooth| smooth + (seen - smooth) / 16.0));
        }
        self.last = Some(now);
    }

    /// Until so many slots have come free: between 1 s and 60 s.
    pub(super) fn expected(&self, slots: usize) -> Duration {
        Duration::from_secs_f64((self.interval.unwrap_or(1.0) * slots as f64).clamp(1.0, 60.0))
    }
}

/// The time in which a call could have gone and did not: what the gap fraction is made of. Stays at nothing as long as the
/// driver asks [`Scheduler::next`] after each release.
#[derive(Debug, Default)]
pub(super) struct Gap {
    since: Option<Instant>,
    pub(super) total: Duration,
}

impl Gap {
    pub(super) fn watch(&mut self, now: Instant, gap: bool) {
        if gap {
            self.since.get_or_insert(now);
        }
    }

    pub(super) fn stop(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.total += now.saturating_duration_since(since);
        }
    }
}
