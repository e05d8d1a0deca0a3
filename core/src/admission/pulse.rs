//! Signs of life of a pool's replicas, told sparsely: each chunk of each stream is one, and none of them is worth the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::placement::MOST;

/// Between two signs of one replica that are told. A replica that is silent for less is not asked after.
const EVERY: Duration = Duration::from_millis(100);

/// When each replica, by its place, was told of last: milliseconds since the door opened.
#[derive(Debug)]
pub(super) struct Pulse {
    began: Instant,
    told: Box<[AtomicU64]>,
}

impl Pulse {
    pub(super) fn new(began: Instant) -> Self {
        Self { began, told: (0..MOST).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether this sign is to be told. Of several at the same moment one is.
    pub(super) fn is_due(&self, at: usize, now: Instant) -> bool {
        let now = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        let Some(told) = self.told.get(at) else { return false };
        let last = told.load(Ordering::Relaxed);
        let due = last.saturating_add(EVERY.as_millis() as u64) <= now;
        due && told.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_told_of_ten_times_a_second_whatever_it_sends() {
        let start = crate::testing::epoch();
        let pulse = Pulse::new(start);
        let told = |at| (0..10_000).filter(|ms| pulse.is_due(at, start + Duration::from_millis(*ms))).count();
        assert_eq!((told(0), told(MOST - 1), told(MOST)), (99, 99, 0));
    }
}
