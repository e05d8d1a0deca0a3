//! The side of the bridge that belongs to one event loop. It keeps the asyncio futures that wait
//! for native results, and delivers the results to them. Under trio, `_trio_loop.py` supplies the
//! futures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures_util::future::AbortHandle;
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use tidegate_bindings::{BodyStream, Chunk, SpawnBatch, StreamReader, generation};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::completions::{Completion, Outcome, Queue};
use super::loop_actions::Mailbox;
use super::loop_waker::LoopWaker;
use super::lost_bodies::PendingRead;
use super::result_waiter::Waiter;
use super::runtime;

/// The native side of one event loop. Used only on the thread of the loop, and created again after
/// a fork.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Port {
    queue: Arc<Queue>,
    generation: u64,
    /// The number of the runtime on which the port was created. A loop on virtual time must not
    /// wait for futures on real time, nor the other way round.
    runtime_id: u64,
    runtime: Handle,
    create_future: Py<PyAny>,
    call_soon: Py<PyAny>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// The asyncio tasks that make exchanges by the client's own transport, by number of the
    /// exchange.
    exchange_tasks: Mutex<HashMap<u64, Py<PyAny>>>,
    spawn_batch: SpawnBatch,
    next_number: AtomicU64,
}

/// An asyncio future that waits for the result of a native future or of a read.
struct Waiting {
    future: Py<PyAny>,
    work: Work,
}

/// The native side of a [`Waiting`].
enum Work {
    /// A native future, which the handle aborts.
    Future(AbortHandle),
    /// A read, which ends when its stream is closed.
    Read { _pending: PendingRead },
}

/// Number of submitted native futures at which they are handed to the worker threads immediately.
/// Fewer are handed over after the loop has run everything that is ready now.
const BATCH: usize = 16;

#[pymethods]
impl Port {
    /// Creates the port of an event loop from two methods of the loop. If `watched` is true, the
    /// loop watches the descriptor `fileno()`. Otherwise a helper thread waits on `waiter()`.
    ///
    /// # Errors
    ///
    /// `OSError` if no descriptor can be created.
    #[new]
    fn new(create_future: Py<PyAny>, call_soon: Py<PyAny>, watched: bool) -> PyResult<Self> {
        let waker = if watched { LoopWaker::with_descriptor() } else { Ok(LoopWaker::with_thread()) };
        let waker = waker.map_err(|e| {
            PyOSError::new_err(format!("cannot make a descriptor to wake the event loop: {e}"))
        })?;
        Self::with_waker(waker, create_future, call_soon)
    }

    /// Creates the port of a loop on virtual time. The loop waits with [`super::Clock::wait`].
    #[staticmethod]
    fn on_virtual_time(create_future: Py<PyAny>, call_soon: Py<PyAny>) -> PyResult<Self> {
        Self::with_waker(LoopWaker::Virtual(Notify::new()), create_future, call_soon)
    }

    /// Returns the descriptor that the loop must watch, or None if the port has none.
    fn fileno(&self) -> Option<i32> {
        self.queue.waker.fileno()
    }

    /// Returns True if the port can run native futures: it belongs to the current runtime of this
    /// process, and is not closed.
    fn usable(&self) -> bool {
        self.runtime_id == runtime::id() && self.is_alive()
    }

    /// Returns a handle on which a thread can block until the port has results.
    fn waiter(&self) -> Waiter {
        Waiter::new(self.queue.clone())
    }

    /// Aborts the native future with this number. If it has ended already, its result is dropped
    /// instead of delivered. Unknown numbers are ignored.
    fn cancel(&self, number: u64) {
        let waiting = self.waiting.lock().remove(&number);
        if let Some(waiting) = waiting {
            self.abort(&waiting);
        }
    }

    /// Hands the submitted native futures to the workers. Drops them if the port is closed or
    /// belongs to the parent of a forked process.
    fn flush(&self) {
        if self.is_alive() {
            self.spawn_batch.flush(&self.runtime);
        } else {
            self.spawn_batch.clear();
        }
    }

    /// Delivers all results to the asyncio futures that wait for them, and runs queued actions.
    fn drain(slf: &Bound<'_, Self>) {
        let (py, this) = (slf.py(), slf.get());
        for completion in this.queue.take() {
            match completion {
                Completion::Outcome(number, outcome) => {
                    let waiting = this.waiting.lock().remove(&number);
                    // Otherwise it was cancelled, and the outcome, with its slot, is dropped here.
                    if let Some(waiting) = waiting {
                        settle(&waiting.future, py, outcome.into_python(py));
                    }
                }
                Completion::Action(action) => {
                    if let Err(error) = action.run(py, slf.as_unbound()) {
                        error.write_unraisable(py, None);
                    }
                }
                Completion::Panicked(number) => {
                    let waiting = this.waiting.lock().remove(&number);
                    if let Some(waiting) = waiting {
                        let lost = PyRuntimeError::new_err(
                            "a fault inside tidegate ended this call; please report it",
                        );
                        settle(&waiting.future, py, Err(lost));
                    }
                }
            }
        }
    }

    /// Aborts all native futures of the port. Called when the loop is closed.
    fn close(&self) {
        self.queue.close();
        self.spawn_batch.clear();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waiting in waiting.values() {
            self.abort(waiting);
        }
        let tasks = std::mem::take(&mut *self.exchange_tasks.lock());
        drop(tasks);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.create_future)?;
        visit.call(&self.call_soon)?;
        if let Some(waiting) = self.waiting.try_lock() {
            for waiting in waiting.values() {
                visit.call(&waiting.future)?;
            }
        }
        if let Some(tasks) = self.exchange_tasks.try_lock() {
            for task in tasks.values() {
                visit.call(task)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.close();
    }
}

impl Port {
    /// Creates the port of a loop that `waker` wakes.
    fn with_waker(waker: LoopWaker, create_future: Py<PyAny>, call_soon: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            queue: Queue::new(waker),
            generation: generation(),
            runtime_id: runtime::id(),
            runtime: runtime::handle()?,
            create_future,
            call_soon,
            waiting: Mutex::default(),
            exchange_tasks: Mutex::default(),
            spawn_batch: SpawnBatch::default(),
            next_number: AtomicU64::new(0),
        })
    }

    /// Returns the queue of completions for this loop.
    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Submits a native future to the worker threads. Returns the asyncio future of its output, and
    /// the number with which [`Port::cancel`] aborts it.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the port is closed or belongs to another runtime.
    pub(crate) fn submit<F, O>(slf: &Bound<'_, Self>, work: F) -> PyResult<(Py<PyAny>, u64)>
    where
        F: Future<Output = O> + Send + 'static,
        O: Outcome + 'static,
    {
        let (py, this) = (slf.py(), slf.get());
        this.check(this.usable())?;
        let future = this.create_future.call0(py)?;
        let number = this.next_number();
        let queue = this.queue.clone();
        let (abort, unsent) = this.spawn_batch.push(work, move |outcome| {
            queue.push(match outcome {
                Some(outcome) => Completion::Outcome(number, Box::new(outcome)),
                None => Completion::Panicked(number),
            });
        });
        let waiting = Waiting { future: future.clone_ref(py), work: Work::Future(abort) };
        this.waiting.lock().insert(number, waiting);
        if unsent == 1 {
            this.call_soon.call1(py, (slf.getattr(intern!(py, "flush"))?,))?;
        } else if unsent >= BATCH {
            this.flush();
        }
        Ok((future, number))
    }

    /// Returns the reader for a body that is read on this loop: `current` if that reader belongs to
    /// the loop, otherwise a new one.
    pub(crate) fn reader(
        &self,
        current: Option<Arc<StreamReader<Queue>>>,
        stream: &Arc<BodyStream>,
    ) -> Arc<StreamReader<Queue>> {
        let own = current.filter(|reader| reader.queues_to(&self.queue));
        let new = || StreamReader::new(self.queue.clone(), self.next_number(), self.runtime.clone(), stream);
        own.unwrap_or_else(new)
    }

    /// Reads the next chunk of a body. If a chunk, the end or an error has arrived, returns its
    /// Python value. Otherwise returns an asyncio future of that value.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the port is closed, or if another read of the same body is pending.
    pub(crate) fn read(&self, py: Python<'_>, reader: &Arc<StreamReader<Queue>>) -> PyResult<Py<PyAny>> {
        self.check(self.is_alive())?;
        if self.waiting.lock().contains_key(&reader.number()) {
            return Err(PyRuntimeError::new_err("this response is being read already"));
        }
        if let Poll::Ready(chunk) = reader.read() {
            return Box::new(chunk).into_python(py);
        }
        // Not under the lock: Python can run the garbage collector here, and with it code that
        // cancels.
        let future = self.create_future.call0(py)?;
        let waiting =
            Waiting { future: future.clone_ref(py), work: Work::Read { _pending: PendingRead::begin() } };
        self.waiting.lock().insert(reader.number(), waiting);
        Ok(future)
    }

    /// Ends the pending read of `reader`: its asyncio future gets `result`. Has no effect if no
    /// read is pending.
    pub(crate) fn end_read(&self, py: Python<'_>, reader: &StreamReader<Queue>, result: Chunk) {
        let waiting = self.waiting.lock().remove(&reader.number());
        if let Some(waiting) = waiting {
            settle(&waiting.future, py, Box::new(result).into_python(py));
        }
    }

    /// Returns the mailbox through which worker threads run actions on this loop.
    pub(crate) fn mailbox(&self) -> Mailbox {
        Mailbox::new(self.queue.clone())
    }

    /// Stores the asyncio task that makes an exchange, so that it can be cancelled.
    pub(crate) fn add_exchange_task(&self, exchange: u64, task: Py<PyAny>) {
        self.exchange_tasks.lock().insert(exchange, task);
    }

    /// Returns the asyncio task that makes an exchange. `None` if the exchange has ended.
    pub(crate) fn exchange_task(&self, py: Python<'_>, exchange: u64) -> Option<Py<PyAny>> {
        self.exchange_tasks.lock().get(&exchange).map(|task| task.clone_ref(py))
    }

    /// Removes the asyncio task of an exchange that has ended.
    pub(crate) fn remove_exchange_task(&self, exchange: u64) {
        let task = self.exchange_tasks.lock().remove(&exchange);
        drop(task);
    }

    /// Returns an unused number for a native future or a read.
    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns `true` if the port can deliver results: it is not closed, and this process has
    /// created it.
    fn is_alive(&self) -> bool {
        self.generation == generation() && !self.queue.is_closed()
    }

    /// Returns `Ok` if `is_open` is `true`, otherwise a `RuntimeError` about a closed event loop.
    fn check(&self, is_open: bool) -> PyResult<()> {
        if is_open {
            Ok(())
        } else {
            Err(PyRuntimeError::new_err(
                "the event loop of this call is closed: make the call on a running event loop",
            ))
        }
    }

    /// Aborts the native future whose result an asyncio future waits for.
    fn abort(&self, waiting: &Waiting) {
        // In a forked child the task belongs to a runtime without threads, and is not touched.
        if let Work::Future(abort) = &waiting.work
            && self.generation == generation()
        {
            abort.abort();
        }
    }
}

/// Sets the result or the exception of an asyncio future. Has no effect if the future is done, for
/// example because it was cancelled.
fn settle(future: &Py<PyAny>, py: Python<'_>, value: PyResult<Py<PyAny>>) {
    let settled = future.call_method0(py, intern!(py, "done")).and_then(|done| {
        if done.is_truthy(py)? {
            return Ok(());
        }
        match value {
            Ok(value) => future.call_method1(py, intern!(py, "set_result"), (value,)),
            Err(error) => future.call_method1(py, intern!(py, "set_exception"), (error,)),
        }
        .map(drop)
    });
    // An error, such as that of a loop that was closed just now, must not affect the rest of the
    // batch.
    if let Err(error) = settled {
        error.write_unraisable(py, None);
    }
}

/// The callback with which an event loop takes the results of its port. The loop stores it as the
/// callback of a descriptor or of a timer. When the loop drops it, the port is closed.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Drain(Py<Port>);

#[pymethods]
impl Drain {
    #[new]
    fn new(port: Py<Port>) -> Self {
        Self(port)
    }

    fn __call__(&self, py: Python<'_>) {
        Port::drain(self.0.bind(py));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.get().close();
    }
}
