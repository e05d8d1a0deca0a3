//! Two small observations: how fast slots come free, and whether a free one was ever left idle.

use std::time::{Duration, Instant};

/// How many slots must have come free, one after the other with calls waiting, before their pace is known.
const ENOUGH: u32 = 32;
/// The share of what is known of the pace that each release forgets: about the last hundred count.
const FORGOTTEN: f64 = 1.0 / 128.0;

/// How fast slots come free: what `retry_after` of a refusal, and the wait of a call that comes, are estimated from.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Smoothed seconds between releases.
    interval: Option<f64>,
    /// Whether calls waited at the last one. Only between two with calls waiting is the time between them the pace of work, and not of arrivals.
    busy: bool,
    seen: u32,
    count: f64,
    seconds: f64,
}

impl Pace {
    /// A slot came free; `busy`: while calls waited.
    pub(super) fn released(&mut self, now: Instant, busy: bool) {
        if let Some(last) = self.last {
            let seen = now.saturating_duration_since(last).as_secs_f64();
            self.interval = Some(self.interval.map_or(seen, |smooth| smooth + (seen - smooth) / 16.0));
            if busy && self.busy {
                self.seen = self.seen.saturating_add(1);
                self.count += 1.0 - self.count * FORGOTTEN;
                self.seconds += seen - self.seconds * FORGOTTEN;
            }
        }
        self.busy = busy;
        self.last = Some(now);
    }

    /// Until so many slots have come free: between 1 s and 60 s.
    pub(super) fn expected(&self, slots: usize) -> Duration {
        Duration::from_secs_f64((self.interval.unwrap_or(1.0) * slots as f64).clamp(1.0, 60.0))
    }

    /// Until so many slots have come free, as far as it is known: one standard deviation of their number earlier than on the average.
    pub(super) fn until(&self, slots: usize) -> Option<Duration> {
        let slots = slots as f64;
        let wait = (slots - slots.sqrt()).max(0.0) * self.seconds / self.count.max(f64::MIN_POSITIVE);
        (self.seen >= ENOUGH).then(|| Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
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
