//! The algorithms of the crate tower-resilience-adaptive 0.14.0, without its tower layer.

use std::time::Duration;

use tower_resilience_adaptive::{Aimd, Algorithm, ConcurrencyAlgorithm, Gradient2, Vegas};

use super::report_once::{LatencyAlgorithm, ReportedOutcome, SingleReport};

pub(super) struct Resilience(Algorithm);

/// Returns AIMD with its defaults: initial limit 10, range 1 to 100. A latency above 100 ms halves
/// the limit.
pub(super) fn aimd() -> SingleReport<Resilience> {
    SingleReport::new(Resilience(Algorithm::Aimd(valid(Aimd::builder().build()))))
}

/// Returns AIMD that halves the limit if a latency exceeds `threshold`. This is the one setting
/// that users of the crate have to choose.
pub(super) fn aimd_with(threshold: Duration) -> SingleReport<Resilience> {
    let aimd = valid(Aimd::builder().latency_threshold(threshold).build());
    SingleReport::first_tokens(Resilience(Algorithm::Aimd(aimd)))
}

/// Returns Vegas with its defaults: initial limit 10, range 1 to 100.
pub(super) fn vegas() -> SingleReport<Resilience> {
    SingleReport::new(Resilience(Algorithm::Vegas(valid(Vegas::builder().build()))))
}

/// Returns Gradient2 with its defaults: initial limit 20, range 1 to 200.
pub(super) fn gradient2() -> SingleReport<Resilience> {
    SingleReport::new(Resilience(Algorithm::Gradient2(valid(Gradient2::builder().build()))))
}

fn valid<A, E: std::fmt::Display>(built: Result<A, E>) -> A {
    match built {
        Ok(algorithm) => algorithm,
        Err(error) => unreachable!("its defaults are valid: {error}"),
    }
}

impl LatencyAlgorithm for Resilience {
    fn limit(&self) -> usize {
        self.0.limit()
    }

    fn on_call(&mut self, outcome: ReportedOutcome, latency: Duration, in_flight: usize) {
        match outcome {
            ReportedOutcome::Answered => self.0.record_success_with_load(latency, in_flight),
            // Its layer counts every `Err` as a failure.
            ReportedOutcome::Overloaded | ReportedOutcome::Failed => self.0.record_failure(),
            ReportedOutcome::Cancelled => self.0.record_dropped(),
        }
    }
}
