//! Blocking waits without the GIL, for callers without an event loop.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use pyo3::import_exception;
use pyo3::prelude::*;

use super::runtime::{self, BlockedThread};
use super::thread_waits;

import_exception!(asyncio, CancelledError);

/// The interval at which a blocked thread checks for signals and for the end of the process.
const TICK: Duration = Duration::from_millis(50);

/// Runs the future on this thread, detached from the interpreter, and returns its output.
///
/// # Errors
///
/// - The exception of a signal handler, such as `KeyboardInterrupt`. The future is dropped.
/// - asyncio's `CancelledError` if the [`Scope`](super::Scope) of the thread is cancelled, for
///   example because the loop over a map was left. It is no subclass of `Exception`, so code that
///   catches `Exception` to retry does not catch it.
/// - `SystemExit` if the interpreter is exiting. Only daemon threads can wait then. They end
///   silently with this exception.
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let Some(scope) = thread_waits::current() else { return wait(py, future) };
    let inside = async move {
        tokio::select! {
            biased;
            () = scope.cancelled() => None,
            output = future => Some(output),
        }
    };
    wait(py, inside)?.ok_or_else(|| CancelledError::new_err("the map that this call belongs to was left"))
}

fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    if let Some(clock) = runtime::virtual_time() {
        return clock.block_on(py, future);
    }
    let runtime = runtime::handle()?;
    let _blocked = BlockedThread::enter();
    // Declared before the future, so that the future is dropped inside the runtime.
    let _context = runtime.enter();
    let mut future = pin!(future);
    loop {
        let waited = {
            let (runtime, future) = (&runtime, &mut future);
            py.detach(move || {
                runtime.block_on(async move { tokio::time::timeout(TICK, future.as_mut()).await })
            })
        };
        if let Ok(output) = waited {
            return Ok(output);
        }
        py.check_signals()?;
        if runtime::is_stopped() {
            return Err(runtime::thread_exit());
        }
    }
}
