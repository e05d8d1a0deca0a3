//! Runs experiments in virtual time: 90 s take milliseconds, and the same seed gives the same
//! figures.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_test_servers::run_paused;

use crate::Fallible;

/// Runs `what` on one thread with tokio's clock paused.
///
/// The clock advances only when every task waits. All jitter is drawn from `seed`.
pub(crate) fn run<T>(seed: u64, what: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    fastrand::seed(seed);
    run_paused(what)?
}

/// Plays each seed and returns the results in the order of the seeds.
///
/// Runs use as many threads as there are cores.
///
/// # Errors
///
/// Returns the first error in the order of the seeds, or an error if a run panicked.
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

/// Returns the fixed time origin of policies that take `now` as an argument. Only differences from
/// it matter.
#[allow(clippy::disallowed_methods)]
pub(crate) fn beginning() -> std::time::Instant {
    static BEGINNING: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    *BEGINNING.get_or_init(std::time::Instant::now)
}
