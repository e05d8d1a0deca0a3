//! Consecutive evidence of one kind against a replica, and how far probes are trusted.

use std::time::{Duration, Instant};

use tidegate_protocol::duration;

/// The amount of evidence that takes a replica down.
pub(super) const ENOUGH: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    since: Instant,
    pub(super) last: Instant,
    pub(super) count: u32,
}

impl Evidence {
    /// Adds evidence. `since` is when the first piece of it began.
    pub(super) fn add(known: &mut Option<Self>, since: Instant, now: Instant) -> Self {
        let evidence = known.get_or_insert(Self { since, last: now, count: 0 });
        evidence.last = now;
        evidence.count += 1;
        *evidence
    }

    /// Returns when the evidence takes the replica down, `after` the first piece of it.
    pub(super) fn takes_down(&self, after: Duration) -> Option<Instant> {
        (self.count >= ENOUGH).then(|| duration::after(self.since, after))
    }
}

/// The history of probes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probes {
    /// Whether a probe has ever succeeded.
    told: bool,
    /// Since when probes have failed.
    bad: Option<Instant>,
    /// Whether calls were accepted while probes failed.
    deaf: bool,
}

impl Probes {
    /// Records a successful probe.
    pub(super) fn well(&mut self) {
        *self = Self { told: true, bad: None, deaf: false };
    }

    /// Records a failed probe. Returns `true` if it counts.
    pub(super) fn bad(&mut self, now: Instant) -> bool {
        if !self.deaf {
            self.bad.get_or_insert(now);
        }
        !self.deaf
    }

    /// Returns `true` if failed probes count by themselves.
    pub(super) fn tell(&self) -> bool {
        self.told
    }

    /// Records that a call sent at `sent` succeeded. Returns `true` if failed probes stop counting
    /// by it.
    pub(super) fn overruled(&mut self, sent: Instant) -> bool {
        if self.told || self.bad.is_none_or(|bad| sent <= bad) {
            return false;
        }
        *self = Self { deaf: true, ..Self::default() };
        true
    }
}
