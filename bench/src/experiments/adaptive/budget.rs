//! The token budget that our side keeps, as the gate does, whoever the contender is. It knows the rate (a header says it), and what is left with each answer; not
//! how much the provider lets gather, not when others take theirs, and of a call's answer only what answers have in the mean.

use std::time::Duration;

/// What may be sent, by what is known.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: f64,
    level: f64,
    at: Duration,
}

/// Of the rate, what is used.
const USED: f64 = 0.985;
/// What gathers while nothing is sent, in seconds of the rate: the gate's default, more than the provider here allows.
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

    /// How long until that many may be sent; zero: now.
    pub(super) fn wait(&mut self, now: Duration, tokens: f64) -> Duration {
        self.refill(now);
        let need = tokens.min(self.per_second * BURST) - self.level;
        if need <= 1e-6 { Duration::ZERO } else { Duration::from_secs_f64(need / self.per_second) }
    }

    pub(super) fn take(&mut self, tokens: f64) {
        self.level -= tokens;
    }

    /// A header says what is left.
    pub(super) fn told(&mut self, now: Duration, remaining: f64) {
        self.refill(now);
        self.level = remaining;
    }
}
