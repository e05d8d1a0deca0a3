//! tower-resilience-adaptive 0.14.0: its algorithms, without its layer.

use std::time::Duration;

use tower_resilience_adaptive::{Aimd, Algorithm, ConcurrencyAlgorithm, Gradient2, Vegas};

use super::told::{Follows, Law, Told};

pub(super) struct Resilience(Algorithm);

/// Starts at 10, 1 to 100; whatever takes over 100 ms is congestion, and halves it.
pub(super) fn aimd() -> Follows<Resilience> {
    built(Aimd::builder().build().map(Algorithm::Aimd))
}

/// The same with the one number changed that its user is asked for.
pub(super) fn aimd_with(threshold: Duration) -> Follows<Resilience> {
    built(Aimd::builder().latency_threshold(threshold).build().map(Algorithm::Aimd))
}

/// Starts at 10, 1 to 100.
pub(super) fn vegas() -> Follows<Resilience> {
    built(Vegas::builder().build().map(Algorithm::Vegas))
}

/// Starts at 20, 1 to 200.
pub(super) fn gradient2() -> Follows<Resilience> {
    built(Gradient2::builder().build().map(Algorithm::Gradient2))
}

fn built<E: std::fmt::Display>(algorithm: Result<Algorithm, E>) -> Follows<Resilience> {
    match algorithm {
        Ok(algorithm) => Follows::new(Resilience(algorithm)),
        Err(error) => unreachable!("its defaults are valid: {error}"),
    }
}

impl Law for Resilience {
    fn limit(&self) -> usize {
        self.0.limit()
    }

    fn told(&mut self, told: Told, latency: Duration, in_flight: usize) {
        match told {
            Told::Answered => self.0.record_success_with_load(latency, in_flight),
            // Its layer takes every `Err` for a failure.
            Told::Overloaded | Told::Failed => self.0.record_failure(),
            Told::Cancelled => self.0.record_dropped(),
        }
    }
}
