//! Generates the calls of other users of the same upstream.

use std::time::Duration;

use fastrand::Rng;

use crate::trace_lengths::{Work, log_normal};

/// A Poisson stream of calls of other users. No figure counts these calls.
#[derive(Clone, Debug)]
pub(crate) struct Others {
    per_second: f64,
    rng: Rng,
    next: Duration,
    id: u64,
}

/// The lowest id of calls of other users.
pub(super) const FIRST_ID: u64 = 1 << 48;

/// Median and sigma of log-normal prompt lengths, in tokens.
const PROMPT: (f64, f64) = (400.0, 0.8);
/// Median and sigma of log-normal answer lengths, in tokens.
const OUTPUT: (f64, f64) = (150.0, 0.7);

impl Others {
    pub(crate) fn new(seed: u64) -> Self {
        Self { per_second: 0.0, rng: Rng::with_seed(seed), next: Duration::MAX, id: FIRST_ID }
    }

    /// Sets the mean number of calls per second from `now` on.
    pub(super) fn rate(&mut self, now: Duration, per_second: f64) {
        self.per_second = per_second;
        self.next = now;
        self.wait();
    }

    fn wait(&mut self) {
        let wait = -(1.0 - self.rng.f64()).ln() / self.per_second;
        self.next =
            Duration::try_from_secs_f64(wait).map_or(Duration::MAX, |wait| self.next.saturating_add(wait));
    }

    /// Returns the time of the next call, or [`Duration::MAX`] if there is none.
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// Returns the id and the lengths of the call that is due at [`Others::next`]. Then draws the
    /// time of the following call.
    pub(super) fn ask(&mut self) -> (u64, Work) {
        self.id += 1;
        self.wait();
        let prompt = log_normal(&mut self.rng, PROMPT.0, PROMPT.1, (8.0, 5_000.0));
        let output = log_normal(&mut self.rng, OUTPUT.0, OUTPUT.1, (4.0, 3_000.0));
        (self.id, Work { prompt, output })
    }
}
