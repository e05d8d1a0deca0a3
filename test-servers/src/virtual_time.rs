//! A runtime with virtual time for one future.

use std::future::Future;
use std::io;

/// Runs a future on this thread with tokio's clock paused, and returns its output.
///
/// # Errors
///
/// Returns an error if the runtime cannot be built.
pub fn run_paused<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(future))
}
