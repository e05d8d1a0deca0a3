//! Starts the tokio runtime that a binding uses.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Starts a tokio runtime with one worker thread, or two on a machine with more than two cores. The
/// other cores are left to the host language.
///
/// # Errors
///
/// If a thread cannot be started.
pub fn start_runtime() -> io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if cores > 2 { 2 } else { 1 };
    Builder::new_multi_thread().worker_threads(workers).thread_name("tidegate").enable_all().build()
}
