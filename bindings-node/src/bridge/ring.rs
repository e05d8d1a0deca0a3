//! Pulling from a stream.
//!
//! A pull that finds a chunk returns it at once, on the loop's own thread. One that finds none is finished by the worker that brings the next
//! bytes: it takes that one chunk and queues it. Nothing is asked of the upstream that the reader did not ask for, and a chunk wakes
//! the loop once and the workers not at all.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::queue::{Done, Queue};

/// What a pull brought: a chunk, the end (`None`), or the error that ended it.
pub(crate) type Pulled = Option<Result<Bytes, tidegate::Error>>;

/// Something that can be pulled from.
pub(crate) trait Pull: Send + Sync {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Pulled>;
}

/// One stream on one loop; the waker that the stream's body holds.
pub(crate) struct Ring {
    queue: Arc<Queue>,
    number: u32,
    runtime: Handle,
    // Weak: the body inside the stream holds the ring.
    stream: Weak<dyn Pull>,
    // Whether a pull waits. Held while polling, so that no chunk is taken that no pull asked for.
    waiting: Mutex<bool>,
}

impl Ring {
    pub(super) fn new(queue: Arc<Queue>, number: u32, runtime: Handle, stream: Weak<dyn Pull>) -> Arc<Self> {
        Arc::new(Self { queue, number, runtime, stream, waiting: Mutex::new(false) })
    }

    /// A pull: pending means that its outcome will be queued.
    pub(crate) fn pull(self: &Arc<Self>) -> Poll<Pulled> {
        self.poll(&mut self.waiting.lock())
    }

    fn poll(self: &Arc<Self>, waiting: &mut bool) -> Poll<Pulled> {
        let Some(stream) = self.stream.upgrade() else { return Poll::Ready(None) };
        let waker = Waker::from(self.clone());
        let polled = stream.poll(&mut Context::from_waker(&waker));
        *waiting = polled.is_pending();
        polled
    }

    fn advance(self: &Arc<Self>) {
        let mut waiting = self.waiting.lock();
        if *waiting && let Poll::Ready(pulled) = self.poll(&mut waiting) {
            self.queue.push(Done::Pulled(self.number, pulled));
        }
    }
}

impl Wake for Ring {
    // A task of its own, since a waker may be called under locks that polling takes.
    fn wake(self: Arc<Self>) {
        let runtime = self.runtime.clone();
        runtime.spawn(async move { self.advance() });
    }
}
