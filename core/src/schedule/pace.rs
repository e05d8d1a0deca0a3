//! Two small observations: how fast slots come free, and whether a free one was ever left idle.

use std::time::{Duration, Instant};

/// Releases to observe before waits are predicted from their pace.
const MIN_RELEASES: u32 = 32;
/// The share of the observed pace that each release replaces: about the last hundred releases
/// count.
const DECAY: f64 = 1.0 / 128.0;
/// The pace that hints assume before any was observed, in seconds a slot.
const DEFAULT_INTERVAL: f64 = 1.0;

/// The rate at which slots come free while they are short: the source of `retry_after` in refusals,
/// and of predicted waits.
///
/// Only time in which slots are short counts. The rest of the time between two releases is a pause
/// of the callers, and says nothing of how fast the work goes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Whether calls waited at the last release.
    waited: bool,
    seen: u32,
    /// Releases and seconds observed, of late.
    count: f64,
    seconds: f64,
}

impl Pace {
    /// Observes that a slot came free. `waits`: calls wait for one; `full_since`: since when none
    /// was free.
    ///
    /// Slots were short since the last release if calls waited at both, and else since none was
    /// free.
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

    /// Seconds between two releases; `None`: slots have not been short yet.
    fn interval(&self) -> Option<f64> {
        (self.seen > 0).then(|| self.seconds / self.count)
    }

    /// Returns the time until so many slots have come free, between 1 s and 60 s.
    pub(super) fn expected(&self, slots: usize) -> Duration {
        let wait = self.interval().unwrap_or(DEFAULT_INTERVAL) * slots as f64;
        Duration::from_secs_f64(wait.clamp(1.0, 60.0))
    }

    /// Returns the time until so many slots have come free, one standard deviation of their number
    /// earlier than on the average. `None`: too few releases were observed.
    pub(super) fn until(&self, slots: usize) -> Option<Duration> {
        let slots = slots as f64;
        let interval = self.interval().filter(|_| self.seen >= MIN_RELEASES)?;
        let wait = (slots - slots.sqrt()).max(0.0) * interval;
        Some(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
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
