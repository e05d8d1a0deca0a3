//! The tokio runtime that this package owns: started at first use, replaced in a forked child, stopped at exit.
//!
//! A forked child inherits the memory of its parent's runtime but none of its threads, so it must never touch it. Each fork starts a new
//! *generation*; whatever was made in an older one is forgotten instead of dropped ([`super::Held`]).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

/// How long the exit of the process waits for blocked threads, and then for tasks to be dropped.
const EXIT: Duration = Duration::from_secs(1);

static GENERATION: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicUsize = AtomicUsize::new(0);
// Locked only by threads attached to the interpreter, and never across a detach: a fork cannot find it locked by another thread.
static CURRENT: RwLock<State> = RwLock::new(State::Unstarted);

enum State {
    Unstarted,
    Running(Runtime),
    Stopped,
}

/// Which fork of the process this is.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A handle on the runtime, started if it was not. Fails after the process began to exit.
pub(crate) fn handle() -> PyResult<Handle> {
    if let State::Running(runtime) = &*CURRENT.read() {
        return Ok(runtime.handle().clone());
    }
    let mut current = CURRENT.write();
    match &*current {
        State::Running(runtime) => Ok(runtime.handle().clone()),
        State::Stopped => Err(PyRuntimeError::new_err("tidegate has stopped: the interpreter is exiting")),
        State::Unstarted => {
            let runtime = start()?;
            let handle = runtime.handle().clone();
            *current = State::Running(runtime);
            Ok(handle)
        }
    }
}

fn start() -> PyResult<Runtime> {
    // Workers only move bytes and run policies: a second one pays only where the interpreter leaves it a core.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if cores > 2 { 2 } else { 1 };
    Ok(Builder::new_multi_thread().worker_threads(workers).thread_name("tidegate").enable_all().build()?)
}

/// Whether the process began to exit.
pub(crate) fn stopped() -> bool {
    matches!(&*CURRENT.read(), State::Stopped)
}

/// Registered to run in the child of every fork.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    BLOCKED.store(0, Ordering::Relaxed);
    std::mem::forget(std::mem::replace(&mut *CURRENT.write(), State::Unstarted));
}

/// Registered to run at exit: drops every call in flight, lets blocked threads go, and stops the workers.
#[pyfunction]
pub(crate) fn stop(py: Python<'_>) {
    let state = std::mem::replace(&mut *CURRENT.write(), State::Stopped);
    let State::Running(runtime) = state else { return };
    py.detach(|| {
        // Threads blocked in a call look up at every tick; timers must still run until they did.
        let mut waited = Duration::ZERO;
        let step = Duration::from_millis(5);
        while BLOCKED.load(Ordering::Acquire) > 0 && waited < EXIT {
            std::thread::sleep(step);
            waited += step;
        }
        runtime.shutdown_timeout(EXIT);
    });
}

/// Counts a thread that waits inside the runtime, detached from the interpreter.
pub(super) struct Blocked(u64);

impl Blocked {
    pub(super) fn enter() -> Self {
        BLOCKED.fetch_add(1, Ordering::AcqRel);
        Self(generation())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if self.0 == generation() {
            BLOCKED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
