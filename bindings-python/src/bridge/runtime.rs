//! The tokio runtime that this package owns: started at first use, replaced in a forked child, stopped at exit.
//!
//! A forked child inherits the memory of its parent's runtime but none of its threads, so it must never touch it. Each fork starts a new
//! *generation*; whatever was made in an older one is forgotten instead of dropped ([`super::Held`]).
//!
//! Tests put a runtime on virtual time in its place, for a while ([`super::Clock`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate_testing::world;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::time::Instant;

use super::clock::Virtual;

/// How long the exit of the process waits for blocked threads, and then for tasks to be dropped.
const EXIT: Duration = Duration::from_secs(1);

static GENERATION: AtomicU64 = AtomicU64::new(0);
static PLACE: AtomicU64 = AtomicU64::new(0);
static PLACES: AtomicU64 = AtomicU64::new(1);
static BLOCKED: AtomicUsize = AtomicUsize::new(0);
// Locked only by threads attached to the interpreter, and never across a detach: a fork cannot find it locked by another thread.
static CURRENT: RwLock<State> = RwLock::new(State::Unstarted);

enum State {
    Unstarted,
    Running(Runtime),
    /// In place of what was there before.
    Virtual {
        time: Arc<Virtual>,
        before: Box<State>,
        place: u64,
    },
    Stopped,
}

/// Which fork of the process this is.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Which runtime is in place: another number for each, in each process.
pub(crate) fn place() -> u64 {
    PLACE.load(Ordering::Relaxed)
}

/// A handle on the runtime, started if it was not. Fails after the process began to exit.
pub(crate) fn handle() -> PyResult<Handle> {
    if let State::Running(runtime) = &*CURRENT.read() {
        return Ok(runtime.handle().clone());
    }
    let mut current = CURRENT.write();
    match &*current {
        State::Running(runtime) => Ok(runtime.handle().clone()),
        State::Virtual { time, .. } => Ok(time.handle().clone()),
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

/// The virtual time, where a test has put one in place.
pub(crate) fn virtual_time() -> Option<Arc<Virtual>> {
    match &*CURRENT.read() {
        State::Virtual { time, .. } => Some(time.clone()),
        _ => None,
    }
}

/// Now, as the runtime that is in place tells it.
pub(crate) fn now() -> Instant {
    let clock = virtual_time();
    let _context: Option<EnterGuard<'_>> = clock.as_ref().map(|clock| clock.handle().enter());
    Instant::now()
}

/// Puts virtual time in place. False: one is in place already, or the process is ending.
pub(super) fn begin_virtual(time: Arc<Virtual>) -> bool {
    let mut current = CURRENT.write();
    if matches!(&*current, State::Virtual { .. } | State::Stopped) {
        return false;
    }
    let before = Box::new(std::mem::replace(&mut *current, State::Stopped));
    let place = PLACE.swap(PLACES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    *current = State::Virtual { time, before, place };
    true
}

/// Puts back what was there before.
pub(super) fn end_virtual(ending: &Arc<Virtual>) {
    let mut current = CURRENT.write();
    if !matches!(&*current, State::Virtual { time, .. } if Arc::ptr_eq(time, ending)) {
        return;
    }
    if let State::Virtual { before, place, .. } = std::mem::replace(&mut *current, State::Stopped) {
        *current = *before;
        PLACE.store(place, Ordering::Relaxed);
    }
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
    PLACE.store(PLACES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    world::forked();
    std::mem::forget(std::mem::replace(&mut *CURRENT.write(), State::Unstarted));
}

/// Registered to run at exit: drops every call in flight, lets blocked threads go, and stops the workers.
#[pyfunction]
pub(crate) fn stop(py: Python<'_>) {
    let state = std::mem::replace(&mut *CURRENT.write(), State::Stopped);
    let runtime = match state {
        State::Running(runtime) => runtime,
        // The virtual one goes with whoever made it.
        State::Virtual { before, .. } => match *before {
            State::Running(runtime) => runtime,
            _ => return,
        },
        State::Unstarted | State::Stopped => return,
    };
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
