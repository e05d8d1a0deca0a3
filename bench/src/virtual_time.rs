//! Runs an experiment in virtual time: ninety seconds in milliseconds, and the same figures from the same seed.

use std::future::Future;

use crate::Fallible;

/// Runs `what` on one thread with tokio's clock paused, so that time passes only when every task waits. `seed` is what all jitter is drawn from.
pub(crate) fn run<T>(seed: u64, what: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    fastrand::seed(seed);
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(what)
}
