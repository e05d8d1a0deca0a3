//! Virtual time in place of the workers: an event loop that sleeps through [`Clock::wait`] shares one order of events with the gate and the fake
//! target behind it.

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

/// How many looks up, of 50 ms of real time each, before a loop that has nothing left to wait for gives up: threads may still have something to say.
const PATIENCE: u32 = 40;

/// Virtual time, and the threads that work for the event loop on it.
pub(crate) struct Virtual {
    time: VirtualTime,
    threads: Arc<Threads>,
}

impl Virtual {
    pub(super) fn handle(&self) -> &Handle {
        self.time.handle()
    }

    pub(crate) fn turn(&self) {
        self.time.turn();
    }

    /// Runs the future on this thread, detached from the interpreter, and time with it. A signal handler that raises ends it.
    pub(super) fn block_on<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let _context = self.handle().enter();
        let mut future = pin!(future);
        if let Some(work) = Threads::present() {
            // The loop drives, and must not overtake its own timers: this thread only waits.
            let beside = self.threads.beside(work, future);
            return Ok(py.detach(|| self.handle().block_on(beside)));
        }
        loop {
            if let Some(output) = py.detach(|| self.time.run(future.as_mut())) {
                return Ok(output);
            }
            py.check_signals()?;
            if runtime::stopped() {
                return Err(PyRuntimeError::new_err("tidegate has stopped: the interpreter is exiting"));
            }
        }
    }
}

/// Virtual time, for the whole process while it is entered.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Clock {
    here: Arc<Virtual>,
    seed: u64,
    world: Mutex<Option<u64>>,
}

#[pymethods]
impl Clock {
    /// Jitter on the thread that enters it comes from the seed.
    #[new]
    fn new(seed: u64) -> PyResult<Self> {
        let here = Virtual { time: VirtualTime::new()?, threads: Arc::default() };
        Ok(Self { here: Arc::new(here), seed, world: Mutex::default() })
    }

    /// Puts it in place of real time.
    fn enter(&self) -> PyResult<()> {
        if !runtime::begin_virtual(self.here.clone()) {
            return Err(PyRuntimeError::new_err("virtual time is in place already: it cannot be nested"));
        }
        fastrand::seed(self.seed);
        let left = self.world.lock().replace(world::enter(None));
        debug_assert!(left.is_none(), "entered twice");
        Ok(())
    }

    /// Puts real time back. Idempotent.
    fn leave(&self) {
        if let Some(number) = self.world.lock().take() {
            runtime::end_virtual(&self.here);
            world::leave(number);
        }
    }

    /// Seconds since it was made.
    fn time(&self) -> f64 {
        self.here.time.elapsed().as_secs_f64()
    }

    /// Lets time pass, for a thread without an event loop.
    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let span = span(seconds)?;
        self.here.block_on(py, async move { tokio::time::sleep(span).await })
    }

    /// A thread begins to work for the event loop: its number. Time stands still until it waits for the gate, or `end_work`.
    fn begin_work(&self) -> u64 {
        self.here.threads.begin()
    }

    /// Called on that thread, before its work. Its jitter has a seed of its own.
    fn enter_thread(&self, work: u64) {
        fastrand::seed(self.seed.wrapping_add(work));
        Threads::enter(work);
    }

    /// Called on that thread, after its work.
    #[staticmethod]
    fn leave_thread() {
        Threads::leave();
    }

    /// Called on the loop's thread, once it knows of the result. Idempotent.
    fn end_work(&self, work: u64) {
        self.here.threads.end(work);
    }

    /// Ends a wait that is under way, or the next: a thread called back.
    fn stir(&self) {
        self.here.threads.stir();
    }

    /// Whether a thread works just now.
    fn is_busy(&self) -> bool {
        self.here.threads.is_busy()
    }

    /// Runs what is ready, without letting time pass.
    fn turn(&self, py: Python<'_>) {
        py.detach(|| self.here.turn());
    }

    /// Waits, as an event loop does, until there is something for it the time is over, or a thread that works for it
    /// woke. False: there is nothing that could ever come.
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
                    if until.is_none() && ticks >= PATIENCE {
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

fn span(seconds: f64) -> PyResult<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= duration::MAX);
    span.ok_or_else(|| {
        PyValueError::new_err(format!("{seconds} is out of range: give 0 s to 315,360,000 s (ten years)"))
    })
}

/// Whether virtual time is in place.
#[pyfunction]
pub(crate) fn is_virtual() -> bool {
    runtime::virtual_time().is_some()
}
