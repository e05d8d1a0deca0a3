//! One event loop's side of the bridge: the futures that wait, and what happens when the bell rings.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures_util::future::{AbortHandle, abortable};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::bell::Bell;
use super::mailbox::Mailbox;
use super::queue::{Done, Outcome, Queue};
use super::ring::{Pull, Pulled, Ring};
use super::runtime;
use super::waiter::Waiter;

/// An event loop as the native side sees it. Used on that loop's thread only; made anew after a fork.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Port {
    queue: Arc<Queue>,
    generation: u64,
    // Whose loop on virtual time must not wait for what runs on real time, nor the other way round.
    place: u64,
    runtime: Handle,
    create_future: Py<PyAny>,
    call_soon: Py<PyAny>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// The tasks that serve exchanges, by the exchange's number.
    serving: Mutex<HashMap<u64, Py<PyAny>>>,
    outbox: Mutex<Vec<Started>>,
    next: AtomicU64,
}

struct Waiting {
    future: Py<PyAny>,
    /// What drops the work; a pull has none: closing its stream does.
    abort: Option<AbortHandle>,
}

/// A call that waits to be handed to the workers with others of its kind.
type Started = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How many calls are handed over at once, at most: each hand-over wakes a sleeping worker, which costs as much as all the rest of the
/// crossing. Fewer wait no longer than until the loop has run what is ready now.
const BATCH: usize = 16;

#[pymethods]
impl Port {
    /// `create_future` and `call_soon` are the loop's. With `watched`, the loop watches `fileno()`.
    /// Without `watched`, a thread waits on `waiter()`.
    #[new]
    fn new(create_future: Py<PyAny>, call_soon: Py<PyAny>, watched: bool) -> PyResult<Self> {
        let bell = if watched { Bell::watched() } else { Ok(Bell::awaited()) };
        let bell = bell.map_err(|e| {
            PyOSError::new_err(format!("cannot make a descriptor to wake the event loop: {e}"))
        })?;
        Self::ringing(bell, create_future, call_soon)
    }

    /// The port of a loop on virtual time, which waits by [`super::Clock::wait`].
    #[staticmethod]
    fn on_virtual_time(create_future: Py<PyAny>, call_soon: Py<PyAny>) -> PyResult<Self> {
        Self::ringing(Bell::Heard(Notify::new()), create_future, call_soon)
    }

    /// The descriptor to watch, or None where the platform has none.
    fn fileno(&self) -> Option<i32> {
        self.queue.bell.fileno()
    }

    /// Whether it can be used: made for the runtime that is in place, in this process, and not closed.
    fn usable(&self) -> bool {
        self.place == runtime::place() && !self.queue.closed()
    }

    /// Returns a handle that blocks a thread until the port has results.
    fn waiter(&self) -> Waiter {
        Waiter::new(self.queue.clone())
    }

    /// Gives up the work of that number: drops it at once, and its result if that is on its way. Unknown numbers are ignored.
    fn cancel(&self, number: u64) {
        let waiting = self.waiting.lock().remove(&number);
        if let Some(waiting) = waiting {
            self.give_up(&waiting);
        }
    }

    /// Hands the calls that wait for it to the workers.
    fn flush(&self) {
        let batch = std::mem::take(&mut *self.outbox.lock());
        if self.lives() && !batch.is_empty() {
            self.runtime.spawn(async move {
                for started in batch {
                    tokio::spawn(started);
                }
            });
        }
    }

    /// Hands over everything that is finished.
    fn drain(slf: &Bound<'_, Self>) {
        let (py, this) = (slf.py(), slf.get());
        for done in this.queue.take() {
            match done {
                Done::Outcome(number, outcome) => {
                    let waiting = this.waiting.lock().remove(&number);
                    // None: cancelled meanwhile. The outcome, and the slot in it, is dropped here.
                    if let Some(waiting) = waiting {
                        settle(&waiting.future, py, outcome.into_python(py));
                    }
                }
                Done::Post(post) => {
                    if let Err(error) = post.deliver(py, slf.as_unbound()) {
                        error.write_unraisable(py, None);
                    }
                }
                Done::Lost(number) => {
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

    /// Gives up everything. Called when the loop is closed.
    fn close(&self) {
        self.queue.close();
        let unsent = std::mem::take(&mut *self.outbox.lock());
        drop(unsent);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waiting in waiting.values() {
            self.give_up(waiting);
        }
        let serving = std::mem::take(&mut *self.serving.lock());
        drop(serving);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.create_future)?;
        visit.call(&self.call_soon)?;
        if let Some(waiting) = self.waiting.try_lock() {
            for waiting in waiting.values() {
                visit.call(&waiting.future)?;
            }
        }
        if let Some(serving) = self.serving.try_lock() {
            for task in serving.values() {
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
    fn ringing(bell: Bell, create_future: Py<PyAny>, call_soon: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            queue: Queue::new(bell),
            generation: runtime::generation(),
            place: runtime::place(),
            runtime: runtime::handle()?,
            create_future,
            call_soon,
            waiting: Mutex::default(),
            serving: Mutex::default(),
            outbox: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Runs the work on the workers. Returns the asyncio future to await, and the number to cancel it by.
    pub(crate) fn submit<F, O>(slf: &Bound<'_, Self>, work: F) -> PyResult<(Py<PyAny>, u64)>
    where
        F: Future<Output = O> + Send + 'static,
        O: Outcome + 'static,
    {
        let (py, this) = (slf.py(), slf.get());
        this.check(this.usable())?;
        let future = this.create_future.call0(py)?;
        let number = this.number();
        let queue = this.queue.clone();
        let (work, abort) = abortable(async move {
            let lost = Lost { queue: &queue, number };
            let outcome = work.await;
            lost.queue.push(Done::Outcome(number, Box::new(outcome)));
        });
        let waiting = Waiting { future: future.clone_ref(py), abort: Some(abort) };
        this.waiting.lock().insert(number, waiting);
        let waits = {
            let mut outbox = this.outbox.lock();
            outbox.push(Box::pin(async move {
                let _ = work.await;
            }));
            outbox.len()
        };
        if waits == 1 {
            this.call_soon.call1(py, (slf.getattr(intern!(py, "flush"))?,))?;
        } else if waits >= BATCH {
            this.flush();
        }
        Ok((future, number))
    }

    /// A ring for a stream that is read on this loop: the one it has, or a new one.
    pub(crate) fn ring(&self, current: Option<Arc<Ring>>, stream: &Arc<dyn Pull>) -> Arc<Ring> {
        let own = current.filter(|ring| ring.of(&self.queue));
        let new =
            || Ring::new(self.queue.clone(), self.number(), self.runtime.clone(), Arc::downgrade(stream));
        own.unwrap_or_else(new)
    }

    /// Pulls once: the value if it is there, else an asyncio future that brings it.
    pub(crate) fn pull(&self, py: Python<'_>, ring: &Arc<Ring>) -> PyResult<Py<PyAny>> {
        self.check(self.lives())?;
        if self.waiting.lock().contains_key(&ring.number()) {
            return Err(PyRuntimeError::new_err("this response is being read already"));
        }
        if let Poll::Ready(pulled) = ring.pull() {
            return Box::new(pulled).into_python(py);
        }
        // Python may run the garbage collector, and with it code that cancels: never under the lock.
        let future = self.create_future.call0(py)?;
        let waiting = Waiting { future: future.clone_ref(py), abort: None };
        self.waiting.lock().insert(ring.number(), waiting);
        Ok(future)
    }

    /// Ends a pull that waits, with what is to be said to its reader.
    pub(crate) fn end(&self, py: Python<'_>, ring: &Ring, said: Pulled) {
        let waiting = self.waiting.lock().remove(&ring.number());
        if let Some(waiting) = waiting {
            settle(&waiting.future, py, Box::new(said).into_python(py));
        }
    }

    /// The way here, for workers.
    pub(crate) fn mailbox(&self) -> Mailbox {
        Mailbox::new(self.queue.clone())
    }

    /// Remembers the task that serves an exchange.
    pub(crate) fn serving(&self, exchange: u64, task: Py<PyAny>) {
        self.serving.lock().insert(exchange, task);
    }

    /// The task that serves it, until that has ended.
    pub(crate) fn task(&self, py: Python<'_>, exchange: u64) -> Option<Py<PyAny>> {
        self.serving.lock().get(&exchange).map(|task| task.clone_ref(py))
    }

    /// Forgets a task that has ended.
    pub(crate) fn served(&self, exchange: u64) {
        let task = self.serving.lock().remove(&exchange);
        drop(task);
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether what was begun on it can be ended on it.
    fn lives(&self) -> bool {
        self.generation == runtime::generation() && !self.queue.closed()
    }

    fn check(&self, good: bool) -> PyResult<()> {
        if good { Ok(()) } else { Err(PyRuntimeError::new_err("the event loop of this call is closed")) }
    }

    fn give_up(&self, waiting: &Waiting) {
        // In a forked child the task belongs to a runtime without threads: leave it.
        if let Some(abort) = &waiting.abort
            && self.generation == runtime::generation()
        {
            abort.abort();
        }
    }
}

/// Says so when a task ends by a panic, rather than leave its coroutine waiting for ever.
struct Lost<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.push(Done::Lost(self.number));
        }
    }
}

/// A future that was cancelled before its coroutine heard of it refuses the value, which is dropped: that is what cancelling means.
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
    // One call's trouble (its loop was closed this moment) is not that of the rest of the batch.
    if let Err(error) = settled {
        error.write_unraisable(py, None);
    }
}

/// The callback held by the loop's reader or timer. Dropping the callback closes the port.
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
