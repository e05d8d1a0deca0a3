//! The load of `share-rate` and `share-headers`, and how their cases run at the same time.

use std::time::{Duration, Instant};

use crate::Fallible;
use crate::experiments::hot_path::std_now;

/// Time in which all processes start, before the first call.
const STARTS_WITHIN: Duration = Duration::from_secs(15);
/// Time between the first calls of two cases, each of which begins with a burst.
const APART: Duration = Duration::from_secs(3);
pub(super) const WINDOW: Duration = Duration::from_secs(60);
pub(super) const SERVICE: Duration = Duration::from_secs(1);
/// More than the rates need.
pub(super) const CAP: usize = 1_000;
/// The number of callers of all processes. More calls wait than the rates admit.
pub(super) const CALLERS: usize = 192;
/// The tokens per minute of the provider.
pub(super) const TPM: u64 = 600_000;
/// The maximum output of a call, in tokens.
pub(super) const MAX_OUTPUT: u64 = 400;

/// Plays all cases at the same time, because each takes minutes and little of the processor. Passes
/// the time of the first call to `play`, and returns its results.
pub(super) fn play_all<C: Sync, T: Send>(
    cases: &[C],
    play: impl Fn(&C, Instant) -> Fallible<T> + Sync,
) -> Fallible<Vec<T>> {
    let begins_at = std_now() + STARTS_WITHIN;
    let play = &play;
    let results = std::thread::scope(|scope| {
        let running = cases.iter().zip(0..).map(|(case, nth)| {
            scope.spawn(move || play(case, begins_at + APART * nth).map_err(|error| error.to_string()))
        });
        let running: Vec<_> = running.collect();
        let results = running.into_iter().map(|case| case.join().map_err(|_| "a case panics".to_owned())?);
        results.collect::<Result<Vec<_>, _>>()
    });
    Ok(results?)
}
