//! A background task that polls a server while calls are made.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::clock::now;

/// Time without new calls and without calls in progress after which the task ends: 10 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// State of a [`PollTask`]: no task is running.
const STOPPED: u8 = 0;
/// State of a [`PollTask`]: the task is running, and no call has arrived since it last asked.
const IDLE: u8 = 1;
/// State of a [`PollTask`]: the task is running, and a call has arrived since it last asked.
const CALLED: u8 = 2;

/// A task that starts with a call, and ends when no call has arrived or been in progress for
/// [`IDLE_TIMEOUT`]. Dropping it aborts the task.
#[derive(Default)]
pub(super) struct PollTask {
    state: Arc<AtomicU8>,
    /// The handle of the latest task, which may have ended. `None` before the first call.
    task: Mutex<Option<AbortHandle>>,
}

impl PollTask {
    /// Records that a call has arrived, and starts the task that `run` returns if none is running.
    /// Costs one atomic load if another call has just arrived. Outside a tokio runtime, does not
    /// start the task.
    pub(super) fn on_call<F>(&self, run: impl FnOnce(Activity) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let state = &self.state;
        let set_called =
            |from| state.compare_exchange(from, CALLED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if state.load(Ordering::Acquire) == CALLED || set_called(IDLE) {
            return;
        }
        if let Ok(runtime) = Handle::try_current()
            && set_called(STOPPED)
        {
            let task = runtime.spawn(run(Activity { state: Some(state.clone()), last_busy: now() }));
            *self.task.lock() = Some(task.abort_handle());
        }
    }
}

impl Drop for PollTask {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}

/// Shows a running task whether calls are made. If the task ends or its runtime drops it, the next
/// call starts another one.
pub(super) struct Activity {
    /// `None` once the task was told to end.
    state: Option<Arc<AtomicU8>>,
    last_busy: Instant,
}

impl Activity {
    /// Returns `false` if the task must end, because no call has arrived or been in progress for
    /// [`IDLE_TIMEOUT`]. `is_busy` is `true` while calls are in progress.
    pub(super) fn continues(&mut self, is_busy: bool) -> bool {
        let Some(state) = &self.state else { return false };
        let now = now();
        if state.swap(IDLE, Ordering::AcqRel) == CALLED || is_busy {
            self.last_busy = now;
        } else if now >= self.last_busy + IDLE_TIMEOUT
            && state.compare_exchange(IDLE, STOPPED, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            // From here on, the next call starts another task.
            self.state = None;
            return false;
        }
        true
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            state.store(STOPPED, Ordering::Release);
        }
    }
}
