//! tower-acc 0.1.1: its algorithms, without its layer.

use std::time::Duration;

use tower_acc::{Algorithm, Gradient2, Vegas};

use super::told::{Follows, Law, Told};

pub(super) struct Acc<A>(A);

/// Creates Vegas with its defaults: start 20, maximum 1,000.
pub(super) fn vegas() -> Follows<Acc<Vegas>> {
    Follows::new(Acc(Vegas::default()))
}

/// Creates Gradient2 with its defaults: start 20, minimum 20, maximum 200.
pub(super) fn gradient2() -> Follows<Acc<Gradient2>> {
    Follows::new(Acc(Gradient2::default()))
}

impl<A: Algorithm> Law for Acc<A> {
    fn limit(&self) -> usize {
        self.0.max_concurrency()
    }

    fn told(&mut self, told: Told, latency: Duration, in_flight: usize) {
        // Its classifier counts every `Err` as a server's error.
        let is_error = matches!(told, Told::Overloaded | Told::Failed);
        self.0.update(latency, in_flight, is_error, told == Told::Cancelled);
    }
}
