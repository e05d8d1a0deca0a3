//! Virtual time for tests. The time of the tokio runtime advances only when everything on it waits.
//! An event loop that waits with [`Clock::wait`] is on the same time, so that its events, those of
//! the gate and those of the fake target have one order.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tidegate::duration;
use tidegate_testing::{VirtualTime, replaced_network};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::executor_threads::Threads;
use super::loop_port::Port;
use super::runtime;
use crate::seconds_argument::to_seconds;

/// Number of checks, 50 ms of real time apart, after which [`Clock::wait`] gives up if it has no
/// timeout. Until then, a thread may still schedule a callback on the event loop.
const MAX_IDLE_CHECKS: u32 = 40;

/// A tokio runtime on virtual time, and the functions that run in executor threads of its event
/// loop.
pub(crate) struct VirtualRuntime {
    time: VirtualTime,
    threads: Arc<Threads>,
}

impl VirtualRuntime {
    /// Returns a handle of the tokio runtime.
    pub(super) fn handle(&self) -> &Handle {
        self.time.handle()
    }

    pub(crate) fn run_ready(&self) {
        self.time.turn();
    }

    /// Runs a future on this thread without the GIL, while virtual time advances, and returns its
    /// output.
    ///
    /// # Errors
    ///
    /// The exception of a signal handler, or `SystemExit` if the interpreter is exiting. The
    /// future is then dropped.
    pub(super) fn block_on<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let _context = self.handle().enter();
        let mut future = pin!(future);
        if let Some(work) = Threads::current_work() {
            // Only the loop advances time, so that it does not miss its own timers. This thread
            // waits.
            let waiting = self.threads.run_in_thread(work, future);
            return Ok(py.detach(|| self.handle().block_on(waiting)));
        }
        loop {
            if let Some(output) = py.detach(|| self.time.run(future.as_mut())) {
                return Ok(output);
            }
            py.check_signals()?;
            if runtime::is_stopped() {
                return Err(runtime::thread_exit());
            }
        }
    }
}

/// A clock of virtual time. From [`Clock::enter`] to [`Clock::leave`], the whole process uses the
/// time of this clock.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Clock {
    virtual_runtime: Arc<VirtualRuntime>,
    seed: u64,
    world: Mutex<Option<u64>>,
}

#[pymethods]
impl Clock {
    /// Creates a clock. `seed` determines the random jitter of backoffs on the thread that enters
    /// the clock.
    #[new]
    fn new(seed: u64) -> PyResult<Self> {
        let virtual_runtime = VirtualRuntime { time: VirtualTime::new()?, threads: Arc::default() };
        Ok(Self { virtual_runtime: Arc::new(virtual_runtime), seed, world: Mutex::default() })
    }

    /// Switches the process to virtual time.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the process is on virtual time already.
    fn enter(&self) -> PyResult<()> {
        if !runtime::begin_virtual(self.virtual_runtime.clone()) {
            return Err(PyRuntimeError::new_err(
                "virtual time is installed already and cannot be nested: leave the other clock first",
            ));
        }
        fastrand::seed(self.seed);
        let left = self.world.lock().replace(replaced_network::enter(None));
        debug_assert!(left.is_none(), "entered twice");
        Ok(())
    }

    /// Switches the process back to real time. Idempotent.
    fn leave(&self) {
        if let Some(number) = self.world.lock().take() {
            runtime::end_virtual(&self.virtual_runtime);
            replaced_network::leave(number);
        }
    }

    /// Returns the virtual seconds since the clock was created.
    fn time(&self) -> f64 {
        self.virtual_runtime.time.elapsed().as_secs_f64()
    }

    /// Lets `seconds` of virtual time pass, on a thread without an event loop.
    ///
    /// # Errors
    ///
    /// `ValueError` unless `seconds` is from 0 to ten years. `TypeError` if it is not a number.
    fn advance(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let span = virtual_duration("seconds", to_seconds("seconds", seconds)?)?;
        self.virtual_runtime.block_on(py, async move { tokio::time::sleep(span).await })
    }

    /// Registers a function that will run in an executor thread of the event loop, and returns its
    /// number. Virtual time does not advance while the function computes. [`Self::end_work`]
    /// removes it.
    fn begin_work(&self) -> u64 {
        self.virtual_runtime.threads.begin()
    }

    /// Records that the calling thread will run the function with the number `work`. Also sets the
    /// seed of the random jitter for this thread. Called before the function starts.
    fn enter_thread(&self, work: u64) {
        fastrand::seed(self.seed.wrapping_add(work));
        Threads::enter(work);
    }

    /// Clears the number of the function that [`Self::enter_thread`] recorded for the calling
    /// thread. Called after the function has returned.
    #[staticmethod]
    fn leave_thread() {
        Threads::leave();
    }

    /// Removes the function with the number `work`. Called when the event loop has its result.
    /// Idempotent.
    fn end_work(&self, work: u64) {
        self.virtual_runtime.threads.end(work);
    }

    /// Ends the current or the next [`Self::wait`]. Called when a thread has scheduled a callback
    /// on the event loop.
    fn notify(&self) {
        self.virtual_runtime.threads.notify();
    }

    /// Returns True if a function in an executor thread computes, which means that it runs and does
    /// not wait for the gate. Virtual time then does not advance.
    fn is_busy(&self) -> bool {
        self.virtual_runtime.threads.is_busy()
    }

    /// Runs all tasks of the runtime that are ready, without advancing time.
    fn run_ready(&self, py: Python<'_>) {
        py.detach(|| self.virtual_runtime.run_ready());
    }

    /// Waits until the port has results, until `timeout` seconds of virtual time have passed, or
    /// until a thread has scheduled a callback on the event loop, and returns True. A `timeout` of
    /// None sets no limit.
    ///
    /// Returns False if nothing is left that could end the wait: no timer, no future and no thread.
    ///
    /// # Errors
    ///
    /// `ValueError` unless `timeout` is from 0 to ten years, or the exception of a signal handler.
    fn wait(&self, py: Python<'_>, port: &Bound<'_, Port>, timeout: Option<f64>) -> PyResult<bool> {
        let queue = port.get().queue().clone();
        let _context = self.virtual_runtime.handle().enter();
        let until = timeout
            .map(|timeout| virtual_duration("timeout", timeout))
            .transpose()?
            .map(|span| duration::after(Instant::now().into_std(), span).into());
        let mut ticks = 0;
        while queue.is_empty() {
            let waited = py.detach(|| {
                self.virtual_runtime.time.run(async {
                    let over = async {
                        match until {
                            Some(until) => tokio::time::sleep_until(until).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = queue.waker.woken() => false,
                        () = self.virtual_runtime.threads.notified() => true,
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

/// Converts a number of seconds into a duration. `name` is the name of the argument in the error
/// message.
///
/// # Errors
///
/// `ValueError` unless the number is from 0 to ten years.
fn virtual_duration(name: &str, seconds: f64) -> PyResult<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= duration::MAX);
    span.ok_or_else(|| {
        PyValueError::new_err(format!(
            "{name}: {seconds} is out of range; give 0 s to 315,360,000 s (ten years)"
        ))
    })
}

/// Returns True if a clock of virtual time is entered.
#[pyfunction]
pub(crate) fn is_virtual() -> bool {
    runtime::virtual_time().is_some()
}
