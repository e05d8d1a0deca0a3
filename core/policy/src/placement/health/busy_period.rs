//! The busy period of a replica: no calls are sent for as long as the replica asked for in its
//! Retry-After, plus a random delay.
//!
//! The random delay applies even if the replica asks for none, because otherwise rejected calls
//! would be sent again immediately. It is random because all clients receive the same Retry-After.
//! The delay grows with each busy period in a row, however many calls are rejected during one
//! period.
//!
//! A late rejection belongs to a call that was sent before the end of the last busy period and is
//! rejected after it, although another call was accepted since. Its Retry-After is counted from the
//! time when the call was sent, and the rejection is ignored if that time has passed.

use std::time::{Duration, Instant};

use fastrand::Rng;

/// Maximum random delay of the first busy period. The minimum is half of it.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Maximum random delay of any busy period.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Maximum Retry-After of a replica. Longer ones are shortened.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The busy period of one replica, during which no calls are sent to it, because it rejected a call
/// as busy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BusyPeriod {
    /// End of the last busy period, or `None` if there was none.
    until: Option<Instant>,
    /// Number of busy periods in a row without an accepted call between them.
    pub(super) consecutive: u32,
}

impl BusyPeriod {
    /// Starts or extends the busy period after a rejection of an attempt that was sent at `sent`.
    /// `asked` is the delay that the replica asked for, or zero if it asked for none. Returns
    /// `false` if the rejection is too late to have an effect.
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
