//! The pace at which slots are released, and the time in which a free slot was left idle.

use std::time::{Duration, Instant};

/// Releases to observe before waits are predicted from their pace.
const MIN_RELEASES: u32 = 32;
/// The weight of a release in the observed pace: about the last hundred releases count.
const DECAY: f64 = 1.0 / 128.0;
/// The pace assumed before any release was observed, in seconds per slot.
const DEFAULT_INTERVAL: f64 = 1.0;

/// The rate at which slots are released while they are short: the source of `retry_after` and of
/// predicted waits.
///
/// Only time in which slots are short counts. The remaining time between two releases is a pause of
/// the callers, which says nothing about the upstream.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Whether calls waited at the last release.
    waited: bool,
    seen: u32,
    /// Decayed counts of releases and seconds.
    count: f64,
    seconds: f64,
}

impl Pace {
    /// Records the release of a slot. `waits`: calls wait for one. `full_since`: since when no slot
    /// was free.
    ///
    /// Slots were short since the last release if calls waited at both releases, otherwise since no
    /// slot was free.
    pub(super) fn on_release(&mut self, now: Instant, waits: bool, full_since: Option<Instant>) {
        let since = match self.last {
            Some(last) if waits && self.waited => Some(last),
            last => full_since.max(full_since.and(last)),
        };
        if let Some(since) = since {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            self.seen = self.seen.saturating_add(1);
            self.count += 1.0 - self.count * DECAY;
            self.seconds += seconds - self.seconds * DECAY;
        }
        self.waited = waits;
        self.last = Some(now);
    }

    /// Returns the seconds between two releases, or `None` if slots have not been short yet.
    fn interval(&self) -> Option<f64> {
        (self.seen > 0).then(|| self.seconds / self.count)
    }

    /// Returns the time until that many slots are released, between 1 s and 60 s.
    pub(super) fn expected(&self, slots: usize) -> Duration {
        let wait = self.interval().unwrap_or(DEFAULT_INTERVAL) * slots as f64;
        Duration::from_secs_f64(wait.clamp(1.0, 60.0))
    }

    /// Returns the time until that many slots are released, reduced by one standard deviation.
    /// `None` if too few releases were observed.
    pub(super) fn until(&self, slots: usize) -> Option<Duration> {
        let slots = slots as f64;
        let interval = self.interval().filter(|_| self.seen >= MIN_RELEASES)?;
        let wait = (slots - slots.sqrt()).max(0.0) * interval;
        Some(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}

/// The time in which a call could have been dispatched and was not: the source of the gap fraction.
///
/// Zero as long as the driver calls [`Scheduler::next`](super::Scheduler::next) after each release.
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
