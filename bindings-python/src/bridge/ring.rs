//! Pulling from a stream on the loop's own thread.
//!
//! A pull that finds a chunk returns it at once. One that finds none leaves a waker; the worker that brings the next bytes only puts the pull's
//! number into the queue, and the loop polls again. No task, no read-ahead: nothing is asked of the upstream that the reader did not ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use pyo3::prelude::*;

use super::queue::{Done, Queue};

/// What a pull brought: a chunk, the end (`None`), or the error that ended it.
pub(crate) type Pulled = Option<Result<Bytes, tidegate::Error>>;

/// Something that can be pulled from.
pub(crate) trait Pull: Send + Sync {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Pulled>;

    /// Becomes the value for the reader: bytes, None or an error.
    fn to_python(&self, py: Python<'_>, pulled: Pulled) -> PyResult<Py<PyAny>>;
}

/// The waker of one stream on one loop.
pub(crate) struct Ring {
    queue: Arc<Queue>,
    number: u64,
    // A wake that nobody waits for stays silent.
    waiting: AtomicBool,
}

impl Ring {
    pub(super) fn new(queue: Arc<Queue>, number: u64) -> Arc<Self> {
        Arc::new(Self { queue, number, waiting: AtomicBool::new(false) })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn of(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Polls once; pending means that the loop will hear of it.
    pub(super) fn poll(self: &Arc<Self>, stream: &dyn Pull) -> Poll<Pulled> {
        self.waiting.store(true, Ordering::Release);
        let waker = Waker::from(self.clone());
        let polled = stream.poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.waiting.store(false, Ordering::Release);
        }
        polled
    }
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.waiting.swap(false, Ordering::AcqRel) {
            self.queue.push(Done::Ready(self.number));
        }
    }
}
