//! The algorithms of the crate tower-acc 0.1.1, without its tower layer.

use std::time::Duration;

use tower_acc::{Algorithm, Gradient2, Vegas};

use super::report_once::{LatencyAlgorithm, ReportedOutcome, SingleReport};

pub(super) struct Acc<A>(A);

/// Returns Vegas with its defaults: initial limit 20, maximum 1,000.
pub(super) fn vegas() -> SingleReport<Acc<Vegas>> {
    SingleReport::new(Acc(Vegas::default()))
}

/// Returns Gradient2 with its defaults: initial limit 20, minimum 20, maximum 200.
pub(super) fn gradient2() -> SingleReport<Acc<Gradient2>> {
    SingleReport::new(Acc(Gradient2::default()))
}

impl<A: Algorithm> LatencyAlgorithm for Acc<A> {
    fn limit(&self) -> usize {
        self.0.max_concurrency()
    }

    fn on_call(&mut self, outcome: ReportedOutcome, latency: Duration, in_flight: usize) {
        // Its classifier counts every `Err` as a server's error.
        let is_error = matches!(outcome, ReportedOutcome::Overloaded | ReportedOutcome::Failed);
        self.0.update(latency, in_flight, is_error, outcome == ReportedOutcome::Cancelled);
    }
}
