//! The tokio runtime that this package owns: one a process, shared by all its event loops, started at first use.
//!
//! It is never stopped: event loops end before the process does, and each gives up what it had under way.

use std::sync::OnceLock;

use napi::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// A handle on the runtime.
pub(crate) fn handle() -> Result<Handle> {
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
