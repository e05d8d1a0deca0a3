//! For how long a replica is left alone that has no room: as long as it asks, and a moment of our own on top.
//!
//! The moment is there even where it asks for none at all, since what is turned away goes back into the queue free of charge; it is drawn by chance, since all of its clients
//! were told the same; and it grows with each hold in a row, once a hold, however many calls were turned away together.
//!
//! If a hold is over, and a call was accepted since, an attempt that was sent before its end says nothing new: what it asks for is counted from when it was sent, and is
//! ignored if that time has passed.

use std::time::{Duration, Instant};

use fastrand::Rng;

/// The first moment at most; half of it at least.
const MOMENT: Duration = Duration::from_millis(100);
/// The longest that it grows to.
const LONGEST: Duration = Duration::from_millis(500);
/// A replica that asks for more is not believed: its pool has others to ask.
const LONGEST_ASKED: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BusyPeriod {
    until: Option<Instant>,
    /// In a row, with no call accepted in between.
    row: u32,
}

impl BusyPeriod {
    /// It turned a call away that was sent then. `asked`: what it said how long. Returns `false` if that is over.
    pub(super) fn extend(
        &mut self,
        now: Instant,
        sent: Instant,
        asked: Option<Duration>,
        rng: &mut Rng,
    ) -> bool {
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        let is_late = self.row == 0 && self.until.is_some_and(|until| sent < until && until <= now);
        let from = if is_late { sent } else { now };
        if is_late && from + asked <= now {
            return false;
        }
        if !self.holds(now) {
            self.row = self.row.saturating_add(1);
        }
        let most = (MOMENT * (1 << self.row.saturating_sub(1).min(3))).min(LONGEST);
        let own = most.mul_f64(0.5 + 0.5 * rng.f64());
        self.until = self.until.max(Some(from + asked + own));
        true
    }

    pub(super) fn holds(&self, now: Instant) -> bool {
        self.until(now).is_some()
    }

    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// It took a call in.
    pub(super) fn accepted(&mut self) {
        self.row = 0;
    }

    /// Its process ended, and with it what it asked for.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}
