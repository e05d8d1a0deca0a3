//! The background task that advances the engines as time passes.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::Shared;

/// Advances the engines at the end of each step, and whenever `wake` is notified. Returns after the
/// last [`Simulator`](super::Simulator) and the last open response were dropped.
///
/// While the task sleeps, it holds only the weak reference.
pub(super) async fn run_engines(shared: Weak<Shared>, wake: Arc<Notify>) {
    let mut reached = std::time::Duration::ZERO;
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            let mut state = shared.state.lock();
            state.advance(shared.clock.now().max(reached));
            state.pool.next_event().map(|at| (at, shared.clock.instant(at)))
        };
        match next {
            Some((at, instant)) => tokio::select! {
                biased;
                // The timer may fire early by a rounding error of the simulated clock. The step has
                // ended nevertheless.
                () = sleep_until(instant) => reached = at,
                () = wake.notified() => {}
            },
            None => wake.notified().await,
        }
    }
}
