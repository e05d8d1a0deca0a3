//! tower-resilience-adaptive 0.14.0: its algorithms, without its layer.

use std::time::Duration;

use tower_resilience_adaptive::{Aimd, Algorithm, ConcurrencyAlgorithm, Gradient2, Vegas};

use super::told::{Follows, Law, Told};

pub(super) struct Resilience(Algorithm);

/// Creates AIMD with its defaults: start 10, range 1 to 100. A latency above 100 ms halves the
/// limit.
pub(super) fn aimd() -> Follows<Resilience> {
    Follows::new(Resilience(Algorithm::Aimd(valid(Aimd::builder().build()))))
}

/// Creates AIMD with another latency threshold, the one setting that its users are asked for.
pub(super) fn aimd_with(threshold: Duration) -> Follows<Resilience> {
    let aimd = valid(Aimd::builder().latency_threshold(threshold).build());
    Follows::first_tokens(Resilience(Algorithm::Aimd(aimd)))
}

/// Creates Vegas with its defaults: start 10, range 1 to 100.
pub(super) fn vegas() -> Follows<Resilience> {
    Follows::new(Resilience(Algorithm::Vegas(valid(Vegas::builder().build()))))
}

/// Creates Gradient2 with its defaults: start 20, range 1 to 200.
pub(super) fn gradient2() -> Follows<Resilience> {
    Follows::new(Resilience(Algorithm::Gradient2(valid(Gradient2::builder().build()))))
}

fn valid<A, E: std::fmt::Display>(built: Result<A, E>) -> A {
    match built {
        Ok(algorithm) => algorithm,
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
            // Its layer counts every `Err` as a failure.
            Told::Overloaded | Told::Failed => self.0.record_failure(),
            Told::Cancelled => self.0.record_dropped(),
        }
    }
}
