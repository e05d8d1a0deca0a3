//! One event loop's side of the bridge: the futures that wait, and what happens when the bell rings.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use super::bell::Bell;
use super::queue::{Done, Outcome, Queue};
use super::ring::{Pull, Ring};
use super::runtime;

/// An event loop as the native side sees it. Used on that loop's thread only; made anew after a fork.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Port {
    queue: Arc<Queue>,
    generation: u64,
    create_future: Py<PyAny>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next: AtomicU64,
}

struct Waiting {
    future: Py<PyAny>,
    work: Work,
}

enum Work {
    Task(AbortHandle),
    Pull(Arc<Ring>, Arc<dyn Pull>),
}

#[pymethods]
impl Port {
    /// `create_future` is the loop's. With `watched`, the loop watches `fileno()`; else a thread loops over `wait()`.
    #[new]
    fn new(create_future: Py<PyAny>, watched: bool) -> PyResult<Self> {
        let bell = if watched { Bell::watched() } else { Ok(Bell::awaited()) };
        let bell = bell.map_err(|e| {
            PyOSError::new_err(format!("cannot make a descriptor to wake the event loop: {e}"))
        })?;
        Ok(Self {
            queue: Queue::new(bell),
            generation: runtime::generation(),
            create_future,
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// The descriptor to watch, or None where the platform has none.
    fn fileno(&self) -> Option<i32> {
        self.queue.bell.fileno()
    }

    /// Whether it can be used: made in this process, and not closed.
    fn usable(&self) -> bool {
        self.generation == runtime::generation() && !self.queue.closed()
    }

    /// Blocks until something is finished; False once closed.
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| self.queue.bell.wait());
        self.usable()
    }

    /// Gives up the work of that number: drops it at once, and its result if that is on its way. Unknown numbers are ignored.
    fn cancel(&self, number: u64) {
        let waiting = self.waiting.lock().remove(&number);
        if let Some(waiting) = waiting {
            self.give_up(&waiting);
        }
    }

    /// Hands over everything that is finished.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        for done in self.queue.take() {
            match done {
                Done::Outcome(number, outcome) => {
                    let waiting = self.waiting.lock().remove(&number);
                    // None: cancelled meanwhile. The outcome, and the slot in it, is dropped here.
                    if let Some(waiting) = waiting {
                        settle(&waiting.future, py, outcome.into_python(py))?;
                    }
                }
                Done::Ready(number) => self.pull_again(py, number)?,
                Done::Lost(number) => {
                    let waiting = self.waiting.lock().remove(&number);
                    if let Some(waiting) = waiting {
                        let lost = PyRuntimeError::new_err(
                            "a fault inside tidegate ended this call; please report it",
                        );
                        settle(&waiting.future, py, Err(lost))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives up everything. Called when the loop is closed.
    fn close(&self) {
        self.queue.close();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waiting in waiting.values() {
            self.give_up(waiting);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.create_future)?;
        if let Some(waiting) = self.waiting.try_lock() {
            for waiting in waiting.values() {
                visit.call(&waiting.future)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.close();
    }
}

impl Port {
    /// Runs the future on the workers. Returns the asyncio future to await, and the number to cancel it by.
    pub(crate) fn submit<F, O>(&self, py: Python<'_>, work: F) -> PyResult<(Py<PyAny>, u64)>
    where
        F: Future<Output = O> + Send + 'static,
        O: Outcome + 'static,
    {
        self.check()?;
        let runtime = runtime::handle()?;
        let future = self.create_future.call0(py)?;
        let number = self.number();
        let queue = self.queue.clone();
        let task = runtime.spawn(async move {
            let lost = Lost { queue: &queue, number };
            let outcome = work.await;
            lost.queue.push(Done::Outcome(number, Box::new(outcome)));
        });
        let waiting = Waiting { future: future.clone_ref(py), work: Work::Task(task.abort_handle()) };
        // A worker may be done already; only this thread drains, so the entry is in time.
        self.waiting.lock().insert(number, waiting);
        Ok((future, number))
    }

    /// A ring for a stream that is read on this loop: the one it has, or a new one.
    pub(crate) fn ring(&self, current: Option<Arc<Ring>>) -> Arc<Ring> {
        current
            .filter(|ring| ring.of(&self.queue))
            .unwrap_or_else(|| Ring::new(self.queue.clone(), self.number()))
    }

    /// Pulls once: the value if it is there, else an asyncio future that brings it.
    pub(crate) fn pull(&self, py: Python<'_>, ring: Arc<Ring>, stream: Arc<dyn Pull>) -> PyResult<Py<PyAny>> {
        self.check()?;
        if self.waiting.lock().contains_key(&ring.number()) {
            return Err(PyRuntimeError::new_err("this response is being read already"));
        }
        if let Poll::Ready(pulled) = ring.poll(&*stream) {
            return stream.to_python(py, pulled);
        }
        // Python may run the garbage collector, and with it code that cancels: never under the lock.
        let future = self.create_future.call0(py)?;
        let waiting = Waiting { future: future.clone_ref(py), work: Work::Pull(ring.clone(), stream) };
        self.waiting.lock().insert(ring.number(), waiting);
        Ok(future)
    }

    /// Gives up a pull that waits.
    pub(crate) fn forget(&self, ring: &Ring) {
        let waiting = self.waiting.lock().remove(&ring.number());
        drop(waiting);
    }

    fn pull_again(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        let pulled = {
            let waiting = self.waiting.lock();
            let Some(Waiting { work: Work::Pull(ring, stream), .. }) = waiting.get(&number) else {
                return Ok(());
            };
            match ring.poll(&**stream) {
                Poll::Ready(pulled) => pulled,
                Poll::Pending => return Ok(()),
            }
        };
        let waiting = self.waiting.lock().remove(&number);
        if let Some(Waiting { future, work: Work::Pull(_, stream) }) = waiting {
            settle(&future, py, stream.to_python(py, pulled))?;
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn check(&self) -> PyResult<()> {
        if self.usable() {
            Ok(())
        } else {
            Err(PyRuntimeError::new_err("the event loop of this call is closed"))
        }
    }

    fn give_up(&self, waiting: &Waiting) {
        // In a forked child the task belongs to a runtime without threads: leave it.
        if let Work::Task(task) = &waiting.work
            && self.generation == runtime::generation()
        {
            task.abort();
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
fn settle(future: &Py<PyAny>, py: Python<'_>, value: PyResult<Py<PyAny>>) -> PyResult<()> {
    if future.call_method0(py, intern!(py, "done"))?.is_truthy(py)? {
        return Ok(());
    }
    match value {
        Ok(value) => future.call_method1(py, intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(py, intern!(py, "set_exception"), (error,))?,
    };
    Ok(())
}

/// The callback that the loop holds. The loop drops it when it is closed, which closes the port.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Drain(Py<Port>);

#[pymethods]
impl Drain {
    #[new]
    fn new(port: Py<Port>) -> Self {
        Self(port)
    }

    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get().drain(py)
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
