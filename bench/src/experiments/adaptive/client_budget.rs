//! The token budget of the simulated client, which delays calls that would exceed the provider's
//! token rate. The budget is the same for each contender (a compared controller), as in the gate.
//!
//! The client knows the rate from a header, and the remaining tokens from each answer. It does not
//! know the depth of the provider's bucket or the calls of other clients, and it assumes that each
//! answer has the mean length.

use std::time::Duration;

/// A token bucket. Its level is the number of tokens (prompt and answer) that the client believes
/// it may still send.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: f64,
    level: f64,
    at: Duration,
}

/// The share of the announced token rate (tokens per minute) that the client uses, from 0 to 1.
const USED: f64 = 0.985;
/// The depth that the client assumes for the provider's token bucket, in seconds of the announced
/// rate. It is the gate's default. The bucket of the simulated provider is less deep: four seconds.
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

    /// Returns the time until `tokens` may be sent. Zero if they may be sent now.
    pub(super) fn wait(&mut self, now: Duration, tokens: f64) -> Duration {
        self.refill(now);
        let need = tokens.min(self.per_second * BURST) - self.level;
        if need <= 1e-6 { Duration::ZERO } else { Duration::from_secs_f64(need / self.per_second) }
    }

    pub(super) fn take(&mut self, tokens: f64) {
        self.level -= tokens;
    }

    /// Sets the level of the bucket to `remaining`, the tokens that a response header announced.
    pub(super) fn on_remaining(&mut self, now: Duration, remaining: f64) {
        self.refill(now);
        self.level = remaining;
    }
}
