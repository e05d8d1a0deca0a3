//! A tenant's own tokens a minute.

use std::time::{Duration, Instant};

use crate::budget::TokenBucket;

/// A debt that takes longer to pay is cut to this: one absurd count must not shut a tenant out for days.
const LONGEST_DEBT: u64 = 10;

/// What a tenant may take, and what it owes.
#[derive(Debug)]
pub(super) struct TenantTokens {
    bucket: TokenBucket,
    most_owed: u64,
}

impl TenantTokens {
    pub(super) fn new(tpm: u64, burst: Duration, now: Instant) -> Self {
        Self { bucket: TokenBucket::per_minute(tpm, burst, now), most_owed: tpm.saturating_mul(LONGEST_DEBT) }
    }

    /// The most that one call may take now.
    pub(super) fn room(&self, now: Instant) -> u32 {
        u32::try_from(self.bucket.available(now)).unwrap_or(u32::MAX)
    }

    /// When a call of that size may go.
    pub(super) fn ready_at(&self, now: Instant, tokens: u32) -> Instant {
        self.bucket.ready_at(now, u64::from(tokens))
    }

    pub(super) fn give(&mut self, now: Instant, tokens: u64) {
        self.bucket.refund(now, tokens);
    }

    /// What was charged turns out as what was used. Says what of it was charged in the end.
    pub(super) fn settle(&mut self, now: Instant, charged: u64, used: u64) -> u64 {
        let used = used.min(charged.saturating_add(self.most_owed.saturating_sub(self.bucket.debt(now))));
        self.bucket.settle(now, charged, used);
        used
    }

    /// What it owes.
    pub(super) fn debt(&self, now: Instant) -> u64 {
        self.bucket.debt(now)
    }

    /// How long so many tokens take to come.
    pub(super) fn time_for(&self, now: Instant, tokens: u64) -> Duration {
        self.bucket.time_for(tokens.saturating_add(self.bucket.debt(now)))
    }
}
