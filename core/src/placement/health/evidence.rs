//! Evidence of one kind, in a row; and how far probes are believed.

use std::time::{Duration, Instant};

use crate::duration;

/// So many pieces of evidence take a replica down.
pub(super) const ENOUGH: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    since: Instant,
    pub(super) last: Instant,
    pub(super) count: u32,
}

impl Evidence {
    /// One more piece of it. `since`: what the first of them speaks of.
    pub(super) fn add(known: &mut Option<Self>, since: Instant, now: Instant) -> Self {
        let evidence = known.get_or_insert(Self { since, last: now, count: 0 });
        evidence.last = now;
        evidence.count += 1;
        *evidence
    }

    /// When it takes the replica down, if that takes so long.
    pub(super) fn takes_down(&self, after: Duration) -> Option<Instant> {
        (self.count >= ENOUGH).then(|| duration::after(self.since, after))
    }
}

/// What probes have told so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probes {
    /// One was answered well.
    told: bool,
    /// Since when they find nothing good.
    bad: Option<Instant>,
    /// Calls are accepted that they knew nothing of.
    deaf: bool,
}

impl Probes {
    /// One was answered well.
    pub(super) fn well(&mut self) {
        *self = Self { told: true, bad: None, deaf: false };
    }

    /// One found nothing good. Says whether that is to be listened to.
    pub(super) fn bad(&mut self, now: Instant) -> bool {
        if !self.deaf {
            self.bad.get_or_insert(now);
        }
        !self.deaf
    }

    /// Whether what they say is believed of itself.
    pub(super) fn tell(&self) -> bool {
        self.told
    }

    /// A call that was sent then went well. Says whether they are not to be listened to from here on.
    pub(super) fn overruled(&mut self, sent: Instant) -> bool {
        if self.told || self.bad.is_none_or(|bad| sent <= bad) {
            return false;
        }
        *self = Self { deaf: true, ..Self::default() };
        true
    }
}
