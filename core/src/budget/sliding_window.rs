//! What was charged in the last window.
//!
//! A bucket alone lets `rate * window + burst` go within a window, and a provider that counts by the clock's minute, or by the last sixty
//! seconds, allows `rate * window`. So what was charged in any window is bounded besides: that is the strictest of the ways in which a
//! limit "a minute" can be meant, and obeying it obeys them all, at the price of at most a minute. Of a day the price would be a day: where the
//! provider says when its own begins, the ledger begins with it ([`quota`](super::quota)). What is expected to be late on the wire
//! counts a little longer than it should.

use std::time::{Duration, Instant};

/// Bins in a window. What leaves it does so in steps of one, so the ledger loses this share of the limit.
const BINS: u64 = 120;
/// Bins that a charge is kept in beyond its window: one that is only partly past, and one for the way to the provider.
const TOTAL_BINS: u64 = BINS + 2;

/// Charges of the last window, in bins.
#[derive(Debug)]
pub(super) struct SlidingWindow {
    bin: f64,
    origin: Instant,
    /// The bin that `now` was in last.
    head: u64,
    bins: Box<[i64]>,
    sum: i64,
}

impl SlidingWindow {
    pub(super) fn new(window: Duration, now: Instant) -> Self {
        let bin = window.as_secs_f64().max(1e-3) / BINS as f64;
        Self { bin, origin: now, head: 0, bins: vec![0; TOTAL_BINS as usize].into(), sum: 0 }
    }

    /// All that was charged in the last window.
    pub(super) fn sum(&mut self, now: Instant) -> i64 {
        self.advance(now);
        self.sum.max(0)
    }

    pub(super) fn add(&mut self, now: Instant, cost: i64) {
        self.advance(now);
        self.add_to_bin(self.head, cost);
    }

    /// What was charged at `then` was so much more, or less. What has left the window is not corrected any more, unless it was more.
    pub(super) fn correct(&mut self, now: Instant, then: Instant, by: i64) {
        self.advance(now);
        let bin = self.bin_at(then).min(self.head);
        if bin + TOTAL_BINS > self.head {
            self.add_to_bin(bin, by);
        } else if by > 0 {
            self.add_to_bin(self.head, by);
        }
    }

    /// When no more than `most` is left in it, if nothing is added: `now`, or later.
    pub(super) fn ready_at(&mut self, now: Instant, most: i64) -> Instant {
        self.advance(now);
        let mut left = self.sum;
        let mut bin = (self.head + 1).saturating_sub(TOTAL_BINS);
        while left > most && bin <= self.head {
            left -= self.bin_mut(bin).copied().unwrap_or(0);
            bin += 1;
        }
        if left == self.sum && left <= most {
            return now;
        }
        // Bins up to `bin` have left once the head is `TOTAL_BINS` past the last of them.
        super::token_bucket::after(self.origin, (bin - 1 + TOTAL_BINS) as f64 * self.bin).max(now)
    }

    fn bin_at(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.origin).as_secs_f64() / self.bin) as u64
    }

    fn bin_mut(&mut self, bin: u64) -> Option<&mut i64> {
        self.bins.get_mut((bin % TOTAL_BINS) as usize)
    }

    fn add_to_bin(&mut self, bin: u64, cost: i64) {
        if let Some(at) = self.bin_mut(bin) {
            *at = at.saturating_add(cost);
            self.sum = self.sum.saturating_add(cost);
        }
    }

    fn advance(&mut self, now: Instant) {
        let to = self.bin_at(now);
        if to >= self.head + TOTAL_BINS {
            self.bins.fill(0);
            self.sum = 0;
        } else {
            for bin in self.head + 1..=to {
                let expired = self.bin_mut(bin).map(std::mem::take).unwrap_or(0);
                self.sum = self.sum.saturating_sub(expired);
            }
        }
        self.head = self.head.max(to);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::epoch;

    proptest! {
        /// Never less than what was charged in the last window, and never what is older than that and three bins.
        #[test]
        fn sum_matches_list_of_charges(steps in prop::collection::vec((0u64..9_000, 0i64..1_000), 1..200)) {
            let start = epoch();
            let mut window_usage = SlidingWindow::new(Duration::from_secs(60), start);
            let (mut at, mut list) = (0, Vec::new());
            for (step, cost) in steps {
                at += step;
                let now = start + Duration::from_millis(at);
                window_usage.add(now, cost);
                list.push((at, cost));
                let since = |ms: u64| list.iter().filter(|(then, _)| then + ms > at).map(|(_, cost)| cost).sum::<i64>();
                prop_assert!(since(60_000) <= window_usage.sum(now) && window_usage.sum(now) <= since(61_500));
                let half = window_usage.sum(now) / 2;
                let then = window_usage.ready_at(now, half);
                prop_assert!(then >= now);
                let sum = window_usage.sum(now);
                if then > now {
                    prop_assert!(sum > half);
                    let mut later = SlidingWindow { bins: window_usage.bins.clone(), ..window_usage };
                    prop_assert!(later.sum(then) <= half, "ready means ready");
                }
            }
        }

        #[test]
        fn correction_removes_charge_completely(cost in 1i64..1_000, wait in 0u64..200) {
            let now = epoch();
            let mut window_usage = SlidingWindow::new(Duration::from_secs(60), now);
            window_usage.add(now, cost);
            let later = now + Duration::from_secs(wait);
            window_usage.correct(later, now, -cost);
            prop_assert_eq!(window_usage.sum(later), 0);
            prop_assert_eq!(window_usage.sum(later + Duration::from_secs(70)), 0);
            window_usage.correct(later, now, i64::MAX);
            window_usage.add(later, i64::MAX);
            prop_assert!(window_usage.sum(later) >= 0);
        }
    }
}
