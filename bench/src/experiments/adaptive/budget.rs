//! The token budget that our side keeps, as the gate does, for every contender.
//!
//! The rate is known from a header, and the remaining tokens from each answer. The depth of the
//! provider's bucket and the calls of others are unknown, and each answer is assumed to have the
//! mean length.

use std::time::Duration;

/// The tokens that may be sent, as far as known.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: f64,
    level: f64,
    at: Duration,
}

/// The share of the rate that is used.
const USED: f64 = 0.985;
/// The depth of the bucket in seconds of the rate: the gate's default, more than the provider here
/// allows.
const BURST: f64 = 6.0;

impl Budget {
    pub(super) fn new(per_minute: f64) -> Self {
        let per_second = per_minute / 60.0 * USED;
        Self { per_second, level: per_second * BURST, at: Duration::ZERO }
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.per_second * BURST);
        self.at = now;
    }

    /// Returns the time until `tokens` may be sent, zero if now.
    pub(super) fn wait(&mut self, now: Duration, tokens: f64) -> Duration {
        self.refill(now);
        let need = tokens.min(self.per_second * BURST) - self.level;
        if need <= 1e-6 { Duration::ZERO } else { Duration::from_secs_f64(need / self.per_second) }
    }

    pub(super) fn take(&mut self, tokens: f64) {
        self.level -= tokens;
    }

    /// Sets the level to the remaining tokens of a header.
    pub(super) fn told(&mut self, now: Duration, remaining: f64) {
        self.refill(now);
        self.level = remaining;
    }
}
