//! Keeps time for a scheduler: wakes it when a wait ends or a cool-down does.
//!
//! One small task per target, alive only while calls wait there. Releases do not pass through it: they let the next call in themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Admission;

/// The task's switch.
#[derive(Debug, Default)]
pub(super) struct Pump {
    running: AtomicBool,
    earlier: Notify,
}

impl Pump {
    /// Sees to it that the scheduler is asked again in time. Call it after anything that may bring the next wake-up forward.
    pub(super) fn arm(self: &Arc<Self>, admission: &Arc<Admission>) {
        if self.running.swap(true, Ordering::AcqRel) {
            self.earlier.notify_one();
        } else {
            tokio::spawn(run(Running(self.clone()), Arc::downgrade(admission)));
        }
    }
}

/// The running task. A runtime that shuts down drops it, and then the next waiting call starts another.
struct Running(Arc<Pump>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

async fn run(running: Running, admission: Weak<Admission>) {
    let pump = running.0.clone();
    loop {
        let Some(strong) = admission.upgrade() else { return };
        let Some(wake) = strong.tick() else {
            drop(running);
            // A call may have been queued between the last look and the switch.
            if strong.has_waiting() {
                pump.arm(&strong);
            }
            return;
        };
        drop(strong);
        tokio::select! {
            () = sleep_until(Instant::from_std(wake)) => {}
            () = pump.earlier.notified() => {}
        }
    }
}
