//! Virtual time instead of workers. An event loop that sleeps by [`Clock::wait`] shares one order
//! of events with the gate and the fake target behind it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tidegate::duration;
use tidegate_testing::{VirtualTime, world};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::port::Port;
use super::runtime;
use super::threads::Threads;

/// The number of checks, 50 ms of real time apart, before a loop without timers stops waiting. A
/// thread may still call back in this time.
const MAX_IDLE_CHECKS: u32 = 40;

/// Virtual time, and the threads that work for its event loop.
pub(crate) struct Virtual {
    time: VirtualTime,
    threads: Arc<Threads>,
}

impl Virtual {
    /// Returns a handle of the virtual runtime.
    pub(super) fn handle(&self) -> &Handle {
        self.time.handle()
    }

    pub(crate) fn turn(&self) {
        self.time.turn();
    }

    /// Runs the future and the time on this thread, detached from the interpreter. An exception of
    /// a signal handler ends the wait.
    pub(super) fn block_on<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let _context = self.handle().enter();
        let mut future = pin!(future);
        if let Some(work) = Threads::present() {
            // Only the loop advances time, so that it does not miss its own timers. This thread
            // waits.
            let beside = self.threads.beside(work, future);
            return Ok(py.detach(|| self.handle().block_on(beside)));
        }
        loop {
            if let Some(output) = py.detach(|| self.time.run(future.as_mut())) {
                return Ok(output);
            }
            py.check_signals()?;
            if runtime::is_stopped() {
                return Err(PyRuntimeError::new_err("tidegate has stopped: the interpreter is exiting"));
            }
        }
    }
}

/// Virtual time. While it is entered, the whole process runs on it.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Clock {
    here: Arc<Virtual>,
    seed: u64,
    world: Mutex<Option<u64>>,
}

#[pymethods]
impl Clock {
    /// Returns a clock. Jitter on the thread that enters it is drawn from the seed.
    #[new]
    fn new(seed: u64) -> PyResult<Self> {
        let here = Virtual { time: VirtualTime::new()?, threads: Arc::default() };
        Ok(Self { here: Arc::new(here), seed, world: Mutex::default() })
    }

    /// Switches to virtual time.
    fn enter(&self) -> PyResult<()> {
        if !runtime::begin_virtual(self.here.clone()) {
            return Err(PyRuntimeError::new_err("virtual time is in place already: it cannot be nested"));
        }
        fastrand::seed(self.seed);
        let left = self.world.lock().replace(world::enter(None));
        debug_assert!(left.is_none(), "entered twice");
        Ok(())
    }

    /// Switches back to real time. Idempotent.
    fn leave(&self) {
        if let Some(number) = self.world.lock().take() {
            runtime::end_virtual(&self.here);
            world::leave(number);
        }
    }

    /// Returns the seconds since the clock was created.
    fn time(&self) -> f64 {
        self.here.time.elapsed().as_secs_f64()
    }

    /// Advances time by `seconds`, on a thread without an event loop.
    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let span = span(seconds)?;
        self.here.block_on(py, async move { tokio::time::sleep(span).await })
    }

    /// Registers a thread that works for the event loop, and returns its number. Time stands still
    /// until the thread waits for the gate, or `end_work`.
    fn begin_work(&self) -> u64 {
        self.here.threads.begin()
    }

    /// Called on the thread before its work. The jitter of each thread has its own seed.
    fn enter_thread(&self, work: u64) {
        fastrand::seed(self.seed.wrapping_add(work));
        Threads::enter(work);
    }

    /// Called on the thread after its work.
    #[staticmethod]
    fn leave_thread() {
        Threads::leave();
    }

    /// Called on the thread of the loop when it has the result. Idempotent.
    fn end_work(&self, work: u64) {
        self.here.threads.end(work);
    }

    /// Ends the current or the next wait, because a thread has called back.
    fn stir(&self) {
        self.here.threads.stir();
    }

    /// Whether a thread computes.
    fn is_busy(&self) -> bool {
        self.here.threads.is_busy()
    }

    /// Runs everything that is ready, without advancing time.
    fn turn(&self, py: Python<'_>) {
        py.detach(|| self.here.turn());
    }

    /// Waits, for an event loop, until it has results, the timeout is over, or a thread that works
    /// for it wakes. Returns `False` if there is no timer, no work and no thread to wait for.
    fn wait(&self, py: Python<'_>, port: &Bound<'_, Port>, timeout: Option<f64>) -> PyResult<bool> {
        let queue = port.get().queue().clone();
        let _context = self.here.handle().enter();
        let until = timeout
            .map(span)
            .transpose()?
            .map(|span| duration::after(Instant::now().into_std(), span).into());
        let mut ticks = 0;
        while queue.is_empty() {
            let waited = py.detach(|| {
                self.here.time.run(async {
                    let over = async {
                        match until {
                            Some(until) => tokio::time::sleep_until(until).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = queue.bell.heard() => false,
                        () = self.here.threads.stirred() => true,
                        () = over => true,
                    }
                })
            });
            match waited {
                Some(true) => break,
                Some(false) => {}
                None => {
                    py.check_signals()?;
                    ticks += 1;
                    if until.is_none() && ticks >= MAX_IDLE_CHECKS {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the duration of a number of seconds.
///
/// # Errors
///
/// `ValueError` unless it is from 0 s to ten years.
fn span(seconds: f64) -> PyResult<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= duration::MAX);
    span.ok_or_else(|| {
        PyValueError::new_err(format!("{seconds} is out of range: give 0 s to 315,360,000 s (ten years)"))
    })
}

/// Whether virtual time is in use.
#[pyfunction]
pub(crate) fn is_virtual() -> bool {
    runtime::virtual_time().is_some()
}
