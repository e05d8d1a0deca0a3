//! Limits how often the gate reports to the scheduler that a replica is alive. Each chunk of each
//! stream shows that its replica is alive, but each report takes the scheduler's lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::placement::MAX_REPLICAS;

/// Minimum time between two reports of one replica: 100 ms. The scheduler does not poll a replica
/// that has been silent for less than this time.
const INTERVAL: Duration = Duration::from_millis(100);

/// Stores when each replica of one pool was last reported alive.
#[derive(Debug)]
pub(super) struct LivenessThrottle {
    created: Instant,
    /// The time of the last report of each replica, in milliseconds since `created`, by the index
    /// of the replica. 0 before the first report.
    reported: Box<[AtomicU64]>,
}

impl LivenessThrottle {
    pub(super) fn new(now: Instant) -> Self {
        Self { created: now, reported: (0..MAX_REPLICAS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Claims a report that the replica with this index is alive. Returns `true` if the caller must
    /// report it now, which then counts as the last report. If several threads call this function
    /// at the same time, only one of them gets `true`.
    pub(super) fn try_claim(&self, index: usize, now: Instant) -> bool {
        let now = u64::try_from(now.saturating_duration_since(self.created).as_millis()).unwrap_or(u64::MAX);
        let Some(reported) = self.reported.get(index) else { return false };
        let last = reported.load(Ordering::Relaxed);
        let due = last.saturating_add(INTERVAL.as_millis() as u64) <= now;
        due && reported.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_is_reported_ten_times_a_second_at_most() {
        let start = crate::clock::now();
        let liveness = LivenessThrottle::new(start);
        let reports = |index| {
            (0..10_000).filter(|ms| liveness.try_claim(index, start + Duration::from_millis(*ms))).count()
        };
        assert_eq!((reports(0), reports(MAX_REPLICAS - 1), reports(MAX_REPLICAS)), (99, 99, 0));
    }
}
