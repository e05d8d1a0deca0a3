//! Rate of first tokens.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of first tokens that are remembered.
const MAX_EVENTS: usize = 64;

/// Times of the last first tokens.
#[derive(Debug, Default)]
pub(super) struct FirstTokenRate(VecDeque<Instant>);

impl FirstTokenRate {
    /// Records a first token.
    pub(super) fn on_first_token(&mut self, now: Instant) {
        if self.0.len() == MAX_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Returns the first tokens per second over the last `window`, or over the time since the
    /// oldest remembered one if that is shorter.
    pub(super) fn rate(&self, now: Instant, window: Duration) -> f64 {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        let count = self.0.iter().rev().take_while(|at| age(at) < window).count();
        let span = if count == MAX_EVENTS { self.0.front().map_or(window, age) } else { window };
        count as f64 / span.as_secs_f64().max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn rate_covers_only_recent_first_tokens() {
        let zero = epoch();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut tokens = FirstTokenRate::default();
        assert_eq!(tokens.rate(at(0), Duration::from_secs(2)), 0.0);
        (0..10).for_each(|n| tokens.on_first_token(at(100 * n)));
        assert_eq!(tokens.rate(at(900), Duration::from_secs(2)), 5.0);
        assert_eq!(
            tokens.rate(at(60_000), Duration::from_secs(2)),
            0.0,
            "first tokens outside of the window do not count"
        );
        (0..1_000).for_each(|n| tokens.on_first_token(at(60_000 + n)));
        let rate = tokens.rate(at(61_000), Duration::from_secs(2));
        assert!((900.0..1_100.0).contains(&rate), "rate of the remembered ones: {rate}");
    }
}
