//! The tokio runtime of the package. All event loops of the process share it, and it starts at
//! first use.
//!
//! The runtime is never stopped: event loops end before the process does, and each aborts its
//! futures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use napi::{Error, Result};
use parking_lot::RwLock;
use tidegate_bindings::start_runtime;
use tidegate_testing::VirtualTime;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

// Tests replace the runtime by one on virtual time while a clock is entered.
static IS_VIRTUAL: AtomicBool = AtomicBool::new(false);
static VIRTUAL: RwLock<Option<Arc<VirtualTime>>> = RwLock::new(None);
static RESULT_PUSHED: Notify = Notify::const_new();

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// Returns a handle of the runtime in use: that of virtual time if a clock is entered, otherwise
/// the real one, which is started at the first call.
///
/// # Errors
///
/// If the threads of the runtime cannot be started.
pub(crate) fn handle() -> Result<Handle> {
    if IS_VIRTUAL.load(Ordering::Relaxed)
        && let Some(time) = &*VIRTUAL.read()
    {
        return Ok(time.handle().clone());
    }
    match RUNTIME.get_or_init(start_runtime) {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(error) => Err(Error::from_reason(format!("cannot start tidegate's threads: {error}"))),
    }
}

/// Switches the process to virtual time. Returns `false` if it is on virtual time already.
pub(super) fn begin_virtual(time: Arc<VirtualTime>) -> bool {
    let mut present = VIRTUAL.write();
    if present.is_some() {
        return false;
    }
    *present = Some(time);
    IS_VIRTUAL.store(true, Ordering::Relaxed);
    true
}

/// Switches the process back to real time.
pub(super) fn end_virtual() {
    let mut present = VIRTUAL.write();
    IS_VIRTUAL.store(false, Ordering::Relaxed);
    *present = None;
}

/// Wakes the thread that waits in `Clock::step` on virtual time. Called after a result was pushed
/// to a queue. Has no effect on real time.
pub(super) fn notify_virtual_time() {
    if IS_VIRTUAL.load(Ordering::Relaxed) {
        RESULT_PUSHED.notify_one();
    }
}

/// Waits until a result is pushed to a queue, which [`notify_virtual_time`] reports. Returns at
/// once if a result was pushed since the last wait. Used on virtual time only.
pub(super) async fn result_pushed() {
    RESULT_PUSHED.notified().await;
}

/// Returns the current time of the runtime in use, which may be virtual.
pub(crate) fn now() -> tokio::time::Instant {
    let time = VIRTUAL.read().clone();
    let _context = time.as_ref().map(|time| time.handle().enter());
    tokio::time::Instant::now()
}

/// On virtual time, runs all tasks that are ready. Afterwards, the calls whose futures were dropped
/// have ended. Has no effect on real time.
pub(crate) fn finish_dropped_work() {
    let time = VIRTUAL.read().clone();
    if let Some(time) = time {
        time.turn();
    }
}
