//! Runs experiments in virtual time, on tokio's paused clock. A simulated period of 90 s takes
//! milliseconds, and the same seed gives the same figures.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_test_servers::run_paused;

use crate::Fallible;

/// Runs `what` on one thread with tokio's clock paused.
///
/// The clock advances only while every task waits for a timer. Jitter is drawn from a generator
/// that is seeded with `seed`.
pub(crate) fn run<T>(seed: u64, what: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    fastrand::seed(seed);
    run_paused(what)?
}

/// Calls `play`, which simulates one run, for each seed. Uses as many threads as there are cores,
/// and returns the results in the order of the seeds.
pub(crate) fn each<T: Send>(
    seeds: impl IntoIterator<Item = u64>,
    play: impl Fn(u64) -> Fallible<T> + Sync,
) -> Fallible<Vec<T>> {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(seed) = seeds.get(place) else { return done };
            done.push((place, play(*seed)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut played = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            played.extend(worker.join().map_err(|_| "a run panicked")?);
        }
        Fallible::Ok(())
    })?;
    played.sort_by_key(|(place, _)| *place);
    played.into_iter().map(|(_, run)| run).collect()
}

/// Returns an instant that stands for the time 0 of a run. It is the same for all callers in a
/// process, and its value has no effect on figures.
#[allow(clippy::disallowed_methods)]
pub(crate) fn time_origin() -> std::time::Instant {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    *ORIGIN.get_or_init(std::time::Instant::now)
}
