//! Simulates a client's polls of the replicas' metrics.

use std::time::Duration;

use fastrand::Rng;

use crate::experiments::pool::replicas::{REPLICAS, Replicas};

/// Whether a chooser polls the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    Yes,
    No,
}

/// Polls each replica independently, every 0.8 to 1.2 s.
pub(crate) struct Polls {
    due: [Duration; REPLICAS],
    seen: [Option<f64>; REPLICAS],
}

impl Polls {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self { due: std::array::from_fn(|_| Duration::from_secs_f64(rng.f64())), seen: [None; REPLICAS] }
    }

    pub(crate) fn next(&self) -> Duration {
        self.due.iter().min().copied().unwrap_or_default()
    }

    /// Polls the replicas whose next poll is due at `now`. Returns the indices of these replicas.
    pub(crate) fn poll(&mut self, now: Duration, rng: &mut Rng, replicas: &Replicas) -> Vec<usize> {
        let mut asked = Vec::new();
        for (at, (due, seen)) in self.due.iter_mut().zip(&mut self.seen).enumerate() {
            if *due <= now {
                *due = now + Duration::from_secs_f64(0.8 + 0.4 * rng.f64());
                *seen = replicas.standing(at).map(|standing| standing.running + standing.waiting);
                asked.push(at);
            }
        }
        asked
    }

    /// Returns the number of calls at the replica `at`, at its last poll. `None` if no poll of it
    /// has returned metrics.
    pub(crate) fn seen(&self, at: usize) -> Option<f64> {
        self.seen.get(at).copied().flatten()
    }
}
