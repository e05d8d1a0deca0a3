//! Remembers limits that a provider announced within the last hour, each with the share of the
//! limit that calls could use.
//!
//! A gateway in front of several backends announces the limit of one backend now and the limit of
//! another later. 429s reduce the usable share of one limit only, because a small backend may
//! reject a rate that a large one serves.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::push_bounded;

/// Maximum difference, as a fraction, between two limits that count as the same.
const TOLERANCE: f64 = 0.05;
/// Maximum number of previous limits that are stored.
const MAX_LIMITS: usize = 16;
/// How long a limit is stored after it was replaced. A reduced share has recovered by then.
const TTL: Duration = Duration::from_secs(3_600);

/// The limits that were in force earlier. The one that was replaced last is at the end.
#[derive(Debug, Default)]
pub(super) struct LimitHistory(VecDeque<PreviousLimit>);

/// A limit that applied until `until`, with the share of it that was usable then (0.01 to 1).
#[derive(Clone, Copy, Debug)]
struct PreviousLimit {
    limit: u64,
    share: f64,
    until: Instant,
}

impl LimitHistory {
    /// Stores `limit` and its usable `share`, because the limit `next` replaces them. Returns the
    /// usable share of `next`: the stored one if `next` was in force within [`TTL`], otherwise 1.
    pub(super) fn switch(&mut self, now: Instant, limit: u64, share: f64, next: u64) -> f64 {
        self.0.retain(|previous| now.saturating_duration_since(previous.until) < TTL);
        let known = self.0.iter().position(|previous| is_same(next, previous.limit));
        let known = known.and_then(|index| self.0.remove(index));
        push_bounded(&mut self.0, MAX_LIMITS, PreviousLimit { limit, share, until: now });
        known.map_or(1.0, |known| known.share)
    }
}

/// Returns `true` if the two limits differ by at most 5 % of `other`.
pub(super) fn is_same(limit: u64, other: u64) -> bool {
    limit.abs_diff(other) as f64 <= TOLERANCE * other as f64
}
