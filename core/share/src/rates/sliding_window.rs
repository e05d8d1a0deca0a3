//! Sliding-window counter: the sum of what was charged within the last window, such as a minute.
//!
//! A token bucket alone admits up to `rate * window + burst` within one window. A provider that
//! counts by the clock minute, or over the last 60 seconds, allows only `rate * window`. Limiting
//! the sum over every window is the strictest reading of "per minute", so a caller that obeys it
//! obeys all readings. The cost is a delay of at most one window.
//!
//! For a window of a day, that delay would be a day. If the provider announces when its day begins,
//! the owner replaces the counter at that time.
//!
//! # Algorithm
//!
//! The window is divided into bins. A charge stays in the sum until its whole bin has left the
//! window, plus some bins for the time until the request reaches the provider.

use std::time::{Duration, Instant};

/// Number of bins per window. Charges expire a whole bin at a time, so up to 1/120 of a limit stays
/// unused.
const BINS: u64 = 120;

/// The sum of what was charged within the last window. All amounts are requests or tokens.
#[derive(Debug)]
pub struct SlidingWindow {
    /// Length of a bin in seconds.
    bin: f64,
    origin: Instant,
    /// Number of the newest bin. Bins are counted from `origin`.
    head: u64,
    bins: Box<[i64]>,
    sum: i64,
}

impl SlidingWindow {
    /// Creates a counter without charges, for requests that are sent when they are charged. A
    /// `window` below 1 ms counts as 1 ms.
    pub fn new(window: Duration, now: Instant) -> Self {
        Self::with_bins(window, BINS, 1, now)
    }

    /// Creates a counter of `bins` bins without charges. A request reaches the provider within the
    /// time of `lag` bins after it is charged.
    pub(crate) fn with_bins(window: Duration, bins: u64, lag: u64, now: Instant) -> Self {
        let bin = window.as_secs_f64().max(1e-3) / bins as f64;
        // One more for the bin that is about to expire.
        let total = bins + 1 + lag;
        // Earlier charges may be added.
        let origin = now.checked_sub(Duration::from_secs_f64(bin * total as f64)).unwrap_or(now);
        Self { bin, origin, head: 0, bins: vec![0; total as usize].into(), sum: 0 }
    }

    /// Returns the charges of the last window, oldest first, with the least time since
    /// then.
    pub fn charges(&mut self, now: Instant) -> Vec<(Duration, i64)> {
        self.advance(now);
        let oldest = (self.head + 1).saturating_sub(self.total());
        let since = now.saturating_duration_since(self.origin).as_secs_f64();
        let charges = (oldest..=self.head).map(|bin| {
            let age = Duration::from_secs_f64((since - (bin + 1) as f64 * self.bin).max(0.0));
            (age, *self.bin_mut(bin))
        });
        charges.filter(|(_, charge)| *charge != 0).collect()
    }

    /// Returns the number of bins that the sum includes.
    fn total(&self) -> u64 {
        self.bins.len() as u64
    }

    /// Returns the sum of the charges within the last window. 0 if corrections made it negative.
    pub fn sum(&mut self, now: Instant) -> i64 {
        self.advance(now);
        self.sum.max(0)
    }

    /// Adds `cost`, which may be negative, to what was charged at `then`.
    ///
    /// If that time has left the window, a positive cost is charged at `now` and a negative one is
    /// ignored.
    pub fn charge(&mut self, now: Instant, then: Instant, cost: i64) {
        self.advance(now);
        let bin = self.bin_at(then).min(self.head);
        let has_expired = bin + self.total() <= self.head;
        if !has_expired || cost > 0 {
            let charged = self.bin_mut(if has_expired { self.head } else { bin });
            *charged = charged.saturating_add(cost);
            self.sum = self.sum.saturating_add(cost);
        }
    }

    /// Returns the earliest time, not before `now`, at which the sum is at most `most` if nothing
    /// else is charged.
    pub fn ready_at(&mut self, now: Instant, most: i64) -> Instant {
        self.advance(now);
        let mut left = self.sum;
        let mut bin = (self.head + 1).saturating_sub(self.total());
        while left > most && bin <= self.head {
            left -= *self.bin_mut(bin);
            bin += 1;
        }
        if left == self.sum && left <= most {
            return now;
        }
        // Bins before `bin` have expired when the head is `total` past the last of them.
        super::after(self.origin, (bin - 1 + self.total()) as f64 * self.bin).max(now)
    }

    /// Returns the number of the bin for the time `at`.
    fn bin_at(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.origin).as_secs_f64() / self.bin) as u64
    }

    fn bin_mut(&mut self, bin: u64) -> &mut i64 {
        let at = (bin % self.total()) as usize;
        &mut self.bins[at]
    }

    /// Moves the newest bin forward to `now`, and drops the charges of bins that have expired.
    fn advance(&mut self, now: Instant) {
        let to = self.bin_at(now);
        if to >= self.head + self.total() {
            self.bins.fill(0);
            self.sum = 0;
        } else {
            for bin in self.head + 1..=to {
                self.sum = self.sum.saturating_sub(std::mem::take(self.bin_mut(bin)));
            }
        }
        self.head = self.head.max(to);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rates::epoch;

    proptest! {
        /// The sum covers at least the last window, and nothing older than the window plus three
        /// bins.
        #[test]
        fn sum_matches_list_of_charges(steps in prop::collection::vec((0u64..9_000, 0i64..1_000), 1..200)) {
            let start = epoch();
            let mut window_usage = SlidingWindow::new(Duration::from_secs(60), start);
            let (mut at, mut list) = (0, Vec::new());
            for (step, cost) in steps {
                at += step;
                let now = start + Duration::from_millis(at);
                window_usage.charge(now, now, cost);
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
            window_usage.charge(now, now, cost);
            let later = now + Duration::from_secs(wait);
            window_usage.charge(later, now, -cost);
            prop_assert_eq!(window_usage.sum(later), 0);
            prop_assert_eq!(window_usage.sum(later + Duration::from_secs(70)), 0);
            window_usage.charge(later, now, i64::MAX);
            window_usage.charge(later, later, i64::MAX);
            prop_assert!(window_usage.sum(later) >= 0);
        }
    }
}
