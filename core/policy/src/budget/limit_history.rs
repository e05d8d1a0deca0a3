//! The usable share of each recently announced limit.
//!
//! A gateway in front of several backends announces the limit of one backend now and that of another
//! later. A share that refusals have cut belongs to one limit: the small backend of a gateway may refuse
//! a rate that the large one serves.

use std::time::{Duration, Instant};

/// Relative difference below which two limits count as the same limit.
const TOLERANCE: f64 = 0.05;
/// Number of limits that are remembered besides the one in force.
const MAX_LIMITS: usize = 16;
/// How long a limit is remembered after it was last in force. A cut share has recovered by then.
const TTL: Duration = Duration::from_secs(3_600);

/// The limits that were in force before the current one, the most recent last.
#[derive(Debug, Default)]
pub(super) struct LimitHistory(Vec<PreviousLimit>);

/// A limit that was in force until `until`, and the share of it that was usable then.
#[derive(Clone, Copy, Debug)]
struct PreviousLimit {
    limit: u64,
    share: f64,
    until: Instant,
}

impl LimitHistory {
    /// Records that `limit` and its `share` are replaced by the limit `next`, and returns the usable
    /// share of `next`: 1.0 unless `next` was in force within the last hour.
    pub(super) fn switch(&mut self, now: Instant, limit: u64, share: f64, next: u64) -> f64 {
        self.0.retain(|previous| now.saturating_duration_since(previous.until) < TTL);
        let known = self.0.iter().position(|previous| is_same(next, previous.limit));
        let next_share = known.map_or(1.0, |index| self.0.remove(index).share);
        if self.0.len() == MAX_LIMITS {
            self.0.remove(0);
        }
        self.0.push(PreviousLimit { limit, share, until: now });
        next_share
    }
}

/// Returns `true` if the two limits differ by at most 5 % of `other`.
pub(super) fn is_same(limit: u64, other: u64) -> bool {
    limit.abs_diff(other) as f64 <= TOLERANCE * other as f64
}
