//! The task that plays the engines while time passes.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::Shared;

/// Sleeps from step to step, or while idle until `wake`; ends when the last handle and answer are gone. It
/// holds no strong reference while it sleeps.
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
                // The timer may fire a rounding early on the simulated clock; the step has ended all the
                // same.
                () = sleep_until(instant) => reached = at,
                () = wake.notified() => {}
            },
            None => wake.notified().await,
        }
    }
}
