//! A tenant's own tokens per minute.

use std::time::{Duration, Instant};

use crate::budget::TokenBucket;

/// The maximum debt, in minutes of tokens: one absurd count must not block a tenant for days.
const LONGEST_DEBT: u64 = 10;

/// A tenant's token budget, which can go into debt.
#[derive(Debug)]
pub(super) struct TenantTokens {
    bucket: TokenBucket,
    most_owed: u64,
}

impl TenantTokens {
    pub(super) fn new(tpm: u64, burst: Duration, now: Instant) -> Self {
        Self { bucket: TokenBucket::per_minute(tpm, burst, now), most_owed: tpm.saturating_mul(LONGEST_DEBT) }
    }

    /// Returns the tokens that one call may take now.
    pub(super) fn room(&self, now: Instant) -> u32 {
        u32::try_from(self.bucket.available(now)).unwrap_or(u32::MAX)
    }

    /// Returns when a call of that size may go.
    pub(super) fn ready_at(&self, now: Instant, tokens: u32) -> Instant {
        self.bucket.ready_at(now, u64::from(tokens))
    }

    pub(super) fn give(&mut self, now: Instant, tokens: u64) {
        self.bucket.refund(now, tokens);
    }

    /// Corrects a charge to the actual usage, and returns the corrected charge.
    pub(super) fn settle(&mut self, now: Instant, charged: u64, used: u64) -> u64 {
        let used = used.min(charged.saturating_add(self.most_owed.saturating_sub(self.bucket.debt(now))));
        self.bucket.settle(now, charged, used);
        used
    }

    /// Returns the debt in tokens.
    pub(super) fn debt(&self, now: Instant) -> u64 {
        self.bucket.debt(now)
    }

    /// Returns the time until that many tokens are available.
    pub(super) fn time_for(&self, now: Instant, tokens: u64) -> Duration {
        self.bucket.time_for(tokens.saturating_add(self.bucket.debt(now)))
    }
}
