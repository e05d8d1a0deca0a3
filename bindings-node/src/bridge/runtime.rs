//! The tokio runtime of the package. All event loops of the process share it, and it starts at
//! first use.
//!
//! The runtime is never stopped: event loops end before the process does, and each drops its work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use napi::{Error, Result};
use parking_lot::RwLock;
use tidegate_bindings::start_runtime;
use tidegate_testing::VirtualTime;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

// Tests replace the runtime by one on virtual time, for a while.
static IS_VIRTUAL: AtomicBool = AtomicBool::new(false);
static VIRTUAL: RwLock<Option<Arc<VirtualTime>>> = RwLock::new(None);
static STIRRED: Notify = Notify::const_new();

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// Returns a handle of the runtime, and starts the runtime at first use.
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

/// Switches to virtual time. Returns `false` if there is a virtual time already.
pub(super) fn begin_virtual(time: Arc<VirtualTime>) -> bool {
    let mut present = VIRTUAL.write();
    if present.is_some() {
        return false;
    }
    *present = Some(time);
    IS_VIRTUAL.store(true, Ordering::Relaxed);
    true
}

/// Switches back to real time.
pub(super) fn end_virtual() {
    let mut present = VIRTUAL.write();
    IS_VIRTUAL.store(false, Ordering::Relaxed);
    *present = None;
}

/// Wakes the thread that waits on virtual time, because there is a result.
pub(super) fn stir() {
    if IS_VIRTUAL.load(Ordering::Relaxed) {
        STIRRED.notify_one();
    }
}

/// Waits until there is a result.
pub(super) async fn stirred() {
    STIRRED.notified().await;
}

/// Returns the time of the runtime in use.
pub(crate) fn now() -> tokio::time::Instant {
    let time = VIRTUAL.read().clone();
    let _context = time.as_ref().map(|time| time.handle().enter());
    tokio::time::Instant::now()
}

/// On virtual time, lets dropped work end.
pub(crate) fn settle() {
    let time = VIRTUAL.read().clone();
    if let Some(time) = time {
        time.turn();
    }
}
