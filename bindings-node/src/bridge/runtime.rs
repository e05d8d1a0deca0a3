//! The tokio runtime that this package owns: one a process, shared by all its event loops, started at first use.
//!
//! It is never stopped: event loops end before the process does, and each gives up what it had under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use napi::{Error, Result};
use parking_lot::RwLock;
use tidegate_testing::VirtualTime;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

// Tests put a runtime on virtual time in its place, for a while.
static IS_VIRTUAL: AtomicBool = AtomicBool::new(false);
static VIRTUAL: RwLock<Option<Arc<VirtualTime>>> = RwLock::new(None);
static STIRRED: Notify = Notify::const_new();

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// A handle on the runtime.
pub(crate) fn handle() -> Result<Handle> {
    if IS_VIRTUAL.load(Ordering::Relaxed)
        && let Some(time) = &*VIRTUAL.read()
    {
        return Ok(time.handle().clone());
    }
    match RUNTIME.get_or_init(start) {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(error) => Err(Error::from_reason(format!("cannot start tidegate's threads: {error}"))),
    }
}

fn start() -> std::io::Result<Runtime> {
    // Workers only move bytes and run policies: a second one pays only where JavaScript leaves it a core.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if cores > 2 { 2 } else { 1 };
    Builder::new_multi_thread().worker_threads(workers).thread_name("tidegate").enable_all().build()
}

/// Puts virtual time in place. False: one is in place already.
pub(super) fn begin_virtual(time: Arc<VirtualTime>) -> bool {
    let mut present = VIRTUAL.write();
    if present.is_some() {
        return false;
    }
    *present = Some(time);
    IS_VIRTUAL.store(true, Ordering::Relaxed);
    true
}

/// Puts real time back.
pub(super) fn end_virtual() {
    let mut present = VIRTUAL.write();
    IS_VIRTUAL.store(false, Ordering::Relaxed);
    *present = None;
}

/// Something is finished: whoever waits on virtual time looks.
pub(super) fn stir() {
    if IS_VIRTUAL.load(Ordering::Relaxed) {
        STIRRED.notify_one();
    }
}

/// Resolves when something is finished.
pub(super) async fn stirred() {
    STIRRED.notified().await;
}

/// Now, as the runtime that is in place tells it.
pub(crate) fn now() -> tokio::time::Instant {
    let time = VIRTUAL.read().clone();
    let _context = time.as_ref().map(|time| time.handle().enter());
    tokio::time::Instant::now()
}

/// On virtual time, lets what was given up a moment ago end.
pub(crate) fn settle() {
    let time = VIRTUAL.read().clone();
    if let Some(time) = time {
        time.turn();
    }
}
