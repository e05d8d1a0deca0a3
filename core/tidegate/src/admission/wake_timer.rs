//! The timer of a scheduler: wakes it when a wait or a cool-down ends.
//!
//! Each target has one timer task, which runs only while calls wait. Released slots are granted to
//! the next call without this task.
//!
//! The task runs on the runtime of the call that started it. If that runtime shuts down, the task
//! is started again on another one. A program with several runtimes must drive that runtime while
//! calls of the others wait: the task stands still on a current-thread runtime that exists but is
//! not driven. Calls are then still rejected when their wait budgets or deadlines end, but they are
//! not admitted at the end of a cool-down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::Admission;

/// The timer task of one scheduler.
#[derive(Debug, Default)]
pub(super) struct WakeTimer {
    running: AtomicBool,
    /// Notified when the task must compute its next wake-up again, because it may have become
    /// earlier.
    earlier: Notify,
    /// Notified when the task ends.
    stopped: Notify,
}

impl WakeTimer {
    /// Starts the timer task, or makes the running task compute its next wake-up again. Must be
    /// called after anything that may make the next wake-up earlier.
    pub(super) fn arm(self: &Arc<Self>, admission: &Arc<Admission>) {
        // A permit may be dropped on a thread without a runtime, such as a garbage collector's. The
        // calls that wait keep the task running then.
        match Handle::try_current() {
            Ok(runtime) if !self.running.swap(true, Ordering::AcqRel) => {
                runtime.spawn(run(Running(self.clone()), Arc::downgrade(admission)));
            }
            _ => self.earlier.notify_one(),
        }
    }

    /// Returns `true` if the timer task is running.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Resolves when the timer task ends. A call that still waits must then call [`Self::arm`]
    /// again.
    pub(super) fn stopped(&self) -> Notified<'_> {
        self.stopped.notified()
    }
}

/// A guard that marks the timer task as running until the guard is dropped.
///
/// If a runtime shuts down and drops the task, the waiting calls of other runtimes are notified and
/// start the task again. Without such calls, the next call that waits starts it.
struct Running(Arc<WakeTimer>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
        self.0.stopped.notify_waiters();
    }
}

/// Runs the timer task: wakes the scheduler each time a wait or a cool-down ends. Returns when no
/// wait and no cool-down is left, or when the admission control is dropped.
async fn run(running: Running, admission: Weak<Admission>) {
    let wake_timer = &running.0;
    loop {
        let wake = match admission.upgrade() {
            Some(admission) => admission.tick(),
            None => None,
        };
        // A call that is queued from here until the end of the task is notified by `stopped`, and
        // starts another task.
        let Some(wake) = wake else { return };
        tokio::select! {
            () = sleep_until(Instant::from_std(wake)) => {}
            () = wake_timer.earlier.notified() => {}
        }
    }
}
