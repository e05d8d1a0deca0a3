//! How fast first tokens come.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many of the last ones are remembered.
const KEPT: usize = 64;

/// The moments of the last first tokens.
#[derive(Debug, Default)]
pub(super) struct Flow(VecDeque<Instant>);

impl Flow {
    /// One came.
    pub(super) fn token(&mut self, now: Instant) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// So many a second, over the last `window`; over less, where more came than are remembered.
    pub(super) fn rate(&self, now: Instant, window: Duration) -> f64 {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        let count = self.0.iter().rev().take_while(|at| age(at) < window).count();
        let over = if count == KEPT { self.0.front().map_or(window, age) } else { window };
        count as f64 / over.as_secs_f64().max(1e-3)
    }
}
