//! How long a busy replica is left alone: as long as it asked for, plus a random delay.
//!
//! The delay applies even if the replica asks for none, because rejected calls return to the queue
//! without a charge. It is random because all clients were told the same. It grows with each busy
//! period in a row, however many calls one period rejects.
//!
//! If a busy period is over and a call was accepted since, an attempt that was sent before its end
//! says nothing new: what it asks for is counted from when it was sent, and ignored if that time
//! has passed.

use std::time::{Duration, Instant};

use fastrand::Rng;

/// The maximum of the first delay. The minimum is half of it.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The maximum that the delay grows to.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// The maximum time that a replica may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The time for which a replica is sent no calls because it rejected one as busy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BusyPeriod {
    /// End of the last busy period, or `None` if there was none.
    until: Option<Instant>,
    /// Busy periods in a row without an accepted call.
    pub(super) consecutive: u32,
}

impl BusyPeriod {
    /// Records a rejection of an attempt sent at `sent`, with the delay that the replica asked for
    /// (zero if it asked for none). Returns `false` if the rejection is out of date and changes
    /// nothing.
    pub(super) fn extend(&mut self, now: Instant, sent: Instant, asked: Duration, rng: &mut Rng) -> bool {
        let asked = asked.min(MAX_RETRY_AFTER);
        let is_late = self.consecutive == 0 && self.until.is_some_and(|until| sent < until && until <= now);
        let from = if is_late { sent } else { now };
        if is_late && from + asked <= now {
            return false;
        }
        if self.until(now).is_none() {
            self.consecutive = self.consecutive.saturating_add(1);
        }
        let max = (FIRST_DELAY * (1 << self.consecutive.saturating_sub(1).min(3))).min(MAX_DELAY);
        let delay = max.mul_f64(0.5 + 0.5 * rng.f64());
        self.until = self.until.max(Some(from + asked + delay));
        true
    }

    /// Returns the end of the current busy period, or `None` if the replica is not busy.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}
