//! Estimates how many slots an upstream accepts after an outage.

use std::time::{Duration, Instant};

/// The number of slots to use while an upstream rejects calls above some number that is not known.
///
/// A rejection lowers the slots to the calls that were in flight before. Each accepted call that
/// took the last slot raises them by a fraction, so that about one call per round is rejected.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedSlots {
    /// The number of slots including a fraction, at least 1.
    value: f64,
    /// The last time at which all slots were used.
    full_at: Instant,
}

impl AcceptedSlots {
    /// Records that an attempt was rejected. `in_flight` is the number of attempts in flight when
    /// it was sent, including itself. `known` are the slots so far, or `None` at the first
    /// rejection.
    pub(super) fn on_rejected(known: Option<Self>, now: Instant, in_flight: usize) -> Self {
        let others = in_flight.saturating_sub(1).max(1) as f64;
        Self { value: known.map_or(others, |known| known.value.min(others)), full_at: now }
    }

    /// Records that an attempt was accepted. `in_flight` is as in [`AcceptedSlots::on_rejected`].
    pub(super) fn on_accepted(&mut self, in_flight: usize) {
        if in_flight >= self.slots() {
            self.value += 1.0 / self.value;
        }
    }

    /// Records that an attempt was sent, so that `in_flight` attempts are in flight. Returns
    /// `false` if all slots are used now, but have not been for `unused`: what was known is out of
    /// date.
    pub(super) fn on_sent(&mut self, now: Instant, in_flight: usize, unused: Duration) -> bool {
        if in_flight < self.slots() {
            return true;
        }
        now.saturating_duration_since(std::mem::replace(&mut self.full_at, now)) <= unused
    }

    /// Records that one of `in_flight` attempts ends: if they used all slots, they did so until
    /// now.
    pub(super) fn on_ended(&mut self, now: Instant, in_flight: usize) {
        if in_flight >= self.slots() {
            self.full_at = now;
        }
    }

    /// Returns the number of whole slots.
    pub(super) fn slots(self) -> usize {
        self.value as usize
    }
}
