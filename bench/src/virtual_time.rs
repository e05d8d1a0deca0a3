//! Runs an experiment in virtual time: ninety seconds in milliseconds, and the same figures from the same seed.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_test_servers::run_paused;

use crate::Fallible;

/// Runs `what` on one thread with tokio's clock paused, so that time passes only when every task waits. `seed` is what all jitter is drawn from.
pub(crate) fn run<T>(seed: u64, what: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    fastrand::seed(seed);
    run_paused(what)?
}

/// Plays each seed, on as many threads as there are cores; results in order of the seeds.
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

/// Where the time of the policies, which are told `now`, begins. Only differences from it matter.
#[allow(clippy::disallowed_methods)]
pub(crate) fn beginning() -> std::time::Instant {
    static BEGINNING: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    *BEGINNING.get_or_init(std::time::Instant::now)
}
