//! The tokio runtime of the package: started at first use, replaced in a forked child, stopped at
//! exit.
//!
//! A forked child inherits the memory of its parent's runtime but none of its threads, so that it
//! must not touch that runtime. Each fork starts a new *generation*. Values of an older generation
//! are forgotten instead of dropped ([`tidegate_bindings::RuntimeBound`]).
//!
//! Tests replace the runtime by one on virtual time, for a while ([`super::Clock`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use tidegate_bindings::{generation, start_runtime};
use tokio::runtime::{EnterGuard, Handle, Runtime};
use tokio::time::Instant;

use super::virtual_clock::VirtualRuntime;

/// Maximum time that the exiting process waits for blocked threads to return. It then waits at most
/// the same time again for the tasks of the runtime to be dropped.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The message of the exceptions that are raised while the interpreter is exiting.
const EXITING: &str = "tidegate has stopped: the interpreter is exiting";

static CURRENT_ID: AtomicU64 = AtomicU64::new(0);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static BLOCKED_THREADS: AtomicUsize = AtomicUsize::new(0);
// Locked only by threads attached to the interpreter, and never across a detach. So no other thread
// has locked it at a fork.
static CURRENT: RwLock<State> = RwLock::new(State::Unstarted);
/// The fork generation to which [`CURRENT`] belongs. Older than that of the process in a forked
/// child that has not used the runtime yet.
static CURRENT_GENERATION: AtomicU64 = AtomicU64::new(0);

/// The state of the tokio runtime of this process.
enum State {
    Unstarted,
    Running(Runtime),
    /// A clock of virtual time is entered. `before` is the state that is restored when the clock is
    /// left.
    Virtual {
        time: Arc<VirtualRuntime>,
        before: Box<State>,
        /// The runtime number to restore when virtual time ends.
        id_before: u64,
    },
    Stopped,
}

/// Returns the number of the runtime in use. Within a process, real time and each virtual time have
/// numbers of their own.
pub(crate) fn id() -> u64 {
    CURRENT_ID.load(Ordering::Relaxed)
}

/// Returns a handle of the runtime in use, which may be on virtual time. Starts the real runtime at
/// the first call.
///
/// # Errors
///
/// `RuntimeError` if the interpreter is exiting; `OSError` if the threads cannot be started.
pub(crate) fn handle() -> PyResult<Handle> {
    if let State::Running(runtime) = &*read() {
        return Ok(runtime.handle().clone());
    }
    let mut current = write();
    match &*current {
        State::Running(runtime) => Ok(runtime.handle().clone()),
        State::Virtual { time, .. } => Ok(time.handle().clone()),
        State::Stopped => Err(PyRuntimeError::new_err(EXITING)),
        State::Unstarted => {
            let runtime = start_runtime()?;
            let handle = runtime.handle().clone();
            *current = State::Running(runtime);
            Ok(handle)
        }
    }
}

/// Returns the runtime on virtual time, or `None` if no clock is entered.
pub(crate) fn virtual_time() -> Option<Arc<VirtualRuntime>> {
    match &*read() {
        State::Virtual { time, .. } => Some(time.clone()),
        _ => None,
    }
}

/// Returns the current time of the runtime in use, which may be virtual.
pub(crate) fn now() -> Instant {
    let clock = virtual_time();
    let _context: Option<EnterGuard<'_>> = clock.as_ref().map(|clock| clock.handle().enter());
    Instant::now()
}

/// Switches the process to virtual time, and returns `true`. Returns `false` without an effect if
/// the process is on virtual time already, or if it is exiting.
pub(super) fn begin_virtual(time: Arc<VirtualRuntime>) -> bool {
    let mut current = write();
    if matches!(&*current, State::Virtual { .. } | State::Stopped) {
        return false;
    }
    let before = Box::new(std::mem::replace(&mut *current, State::Stopped));
    let id_before = CURRENT_ID.swap(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    *current = State::Virtual { time, before, id_before };
    true
}

/// Switches the process from the virtual time `ending` back to the earlier state. Has no effect if
/// that virtual time is not in use.
pub(super) fn end_virtual(ending: &Arc<VirtualRuntime>) {
    let mut current = write();
    if !matches!(&*current, State::Virtual { time, .. } if Arc::ptr_eq(time, ending)) {
        return;
    }
    if let State::Virtual { before, id_before, .. } = std::mem::replace(&mut *current, State::Stopped) {
        *current = *before;
        CURRENT_ID.store(id_before, Ordering::Relaxed);
    }
}

/// Returns `true` if the interpreter is exiting.
pub(crate) fn is_stopped() -> bool {
    matches!(&*read(), State::Stopped)
}

/// Returns the exception that ends a thread whose wait ended because the interpreter is exiting.
/// Threads end silently with it, and code that catches `Exception` to retry does not catch it.
pub(super) fn thread_exit() -> PyErr {
    PySystemExit::new_err(EXITING)
}

/// Locks the state of this process for reading.
fn read() -> RwLockReadGuard<'static, State> {
    forget_parent();
    CURRENT.read()
}

/// Locks the state of this process for writing.
fn write() -> RwLockWriteGuard<'static, State> {
    forget_parent();
    CURRENT.write()
}

/// Forgets the parent's runtime at the first use in a forked child process, so that a new one is
/// started. Has no effect otherwise.
fn forget_parent() {
    if CURRENT_GENERATION.load(Ordering::Acquire) == generation() {
        return;
    }
    let mut current = CURRENT.write();
    if CURRENT_GENERATION.load(Ordering::Relaxed) != generation() {
        std::mem::forget(std::mem::replace(&mut *current, State::Unstarted));
        BLOCKED_THREADS.store(0, Ordering::Relaxed);
        CURRENT_GENERATION.store(generation(), Ordering::Release);
    }
}

/// Aborts all calls, makes blocked threads return, stops the worker threads, and returns the slots
/// of shared limits. Registered to run when the interpreter exits.
#[pyfunction]
pub(crate) fn stop(py: Python<'_>) {
    stop_runtime(py);
    py.detach(tidegate::return_shared_slots);
}

fn stop_runtime(py: Python<'_>) {
    let state = std::mem::replace(&mut *write(), State::Stopped);
    let runtime = match state {
        State::Running(runtime) => runtime,
        // The clock owns the virtual runtime.
        State::Virtual { before, .. } => match *before {
            State::Running(runtime) => runtime,
            _ => return,
        },
        State::Unstarted | State::Stopped => return,
    };
    py.detach(|| {
        // Threads that are blocked in a call check at each tick. Timers must run until they have.
        let mut waited = Duration::ZERO;
        let step = Duration::from_millis(5);
        while BLOCKED_THREADS.load(Ordering::Acquire) > 0 && waited < EXIT_TIMEOUT {
            std::thread::sleep(step);
            waited += step;
        }
        runtime.shutdown_timeout(EXIT_TIMEOUT);
    });
}

/// A guard that counts the calling thread as blocked (waiting inside the runtime without the GIL)
/// until the guard is dropped.
pub(super) struct BlockedThread(u64);

impl BlockedThread {
    /// Counts the calling thread as blocked until the returned value is dropped.
    pub(super) fn enter() -> Self {
        BLOCKED_THREADS.fetch_add(1, Ordering::AcqRel);
        Self(generation())
    }
}

impl Drop for BlockedThread {
    fn drop(&mut self) {
        if self.0 == generation() {
            BLOCKED_THREADS.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
