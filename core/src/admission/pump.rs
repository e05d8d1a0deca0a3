//! Keeps time for a scheduler: wakes it when a wait ends or a cool-down does.
//!
//! One small task per target, alive only while calls wait there. Releases do not pass through it:
//! they let the next call in themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::Admission;

/// The task's switch.
#[derive(Debug, Default)]
pub(super) struct Pump {
    running: AtomicBool,
    earlier: Notify,
    stopped: Notify,
}

impl Pump {
    /// Sees to it that the scheduler is asked again in time. Call it after anything that may bring
    /// the next wake-up forward.
    pub(super) fn arm(self: &Arc<Self>, admission: &Arc<Admission>) {
        // A permit may be dropped on a thread that belongs to no runtime (a garbage collector's);
        // whoever waits keeps the task running.
        match Handle::try_current() {
            Ok(runtime) if !self.running.swap(true, Ordering::AcqRel) => {
                runtime.spawn(run(Running(self.clone()), Arc::downgrade(admission)));
            }
            _ => self.earlier.notify_one(),
        }
    }

    /// Whether the task runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Until the task, having run, no longer does. Whoever waits then arms the pump again.
    pub(super) fn stopped(&self) -> Notified<'_> {
        self.stopped.notified()
    }
}

/// The running task. A runtime that shuts down drops it; then a call that waits on another runtime,
/// or comes next, starts it there.
struct Running(Arc<Pump>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
        self.0.stopped.notify_waiters();
    }
}

async fn run(running: Running, admission: Weak<Admission>) {
    let pump = &running.0;
    loop {
        let wake = match admission.upgrade() {
            Some(admission) => admission.tick(),
            None => None,
        };
        // A call that is queued between this look and the end of the task is told that the task has
        // stopped, and starts another.
        let Some(wake) = wake else { return };
        tokio::select! {
            () = sleep_until(Instant::from_std(wake)) => {}
            () = pump.earlier.notified() => {}
        }
    }
}
