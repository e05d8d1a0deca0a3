//! Reads response bodies on an event loop.
//!
//! If a chunk has arrived, a read returns it at once, on the thread of the loop. Otherwise, the
//! worker thread that receives the next bytes takes one chunk and queues it for the loop. Nothing
//! is requested from the upstream before the loop reads. Each queued chunk wakes the loop once, and
//! no worker thread. If the thread of the loop took the chunk itself, it would have to wake the
//! thread of the connection.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::body_stream::{BodyStream, Chunk};

/// A queue for the results of those reads for which no chunk had arrived. One event loop takes the
/// results.
pub trait ChunkQueue: Send + Sync + 'static {
    /// Queues `chunk` as the result of the pending read of the body with this number.
    fn push_chunk(&self, number: u64, chunk: Chunk);
}

/// Reads one body on one event loop. The reader is also the waker with which the body is polled.
pub struct StreamReader<Q> {
    queue: Arc<Q>,
    number: u64,
    runtime: Handle,
    // Weak, because the body in the stream holds the reader.
    stream: Weak<BodyStream>,
    // `true` while a read is pending. Locked while polling, so that no chunk is taken without a
    // read.
    is_waiting: Mutex<bool>,
}

impl<Q: ChunkQueue> StreamReader<Q> {
    /// Returns a reader for `stream`. If no chunk has arrived when the body is read, the result is
    /// pushed to `queue` later. `number` identifies the body in the queue.
    pub fn new(queue: Arc<Q>, number: u64, runtime: Handle, stream: &Arc<BodyStream>) -> Arc<Self> {
        let (stream, is_waiting) = (Arc::downgrade(stream), Mutex::new(false));
        Arc::new(Self { queue, number, runtime, stream, is_waiting })
    }

    /// Returns the number of the body, under which results are queued.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns `true` if this reader pushes the results of pending reads to `queue`.
    pub fn queues_to(&self, queue: &Arc<Q>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Reads the next chunk. Returns `Pending` if none has arrived. The result is then pushed to
    /// the queue later.
    pub fn read(self: &Arc<Self>) -> Poll<Chunk> {
        self.poll(&mut self.is_waiting.lock())
    }

    /// Polls the body once, with this reader as the waker. Sets `is_waiting` to `true` if the read
    /// is pending, and to `false` otherwise.
    fn poll(self: &Arc<Self>, is_waiting: &mut bool) -> Poll<Chunk> {
        let Some(stream) = self.stream.upgrade() else { return Poll::Ready(None) };
        let waker = Waker::from(self.clone());
        let polled = stream.poll(&mut Context::from_waker(&waker));
        *is_waiting = polled.is_pending();
        polled
    }

    /// Polls the body again if a read is pending, and queues the result if there is one. Has no
    /// effect if no read is pending.
    fn on_wake(self: &Arc<Self>) {
        let mut is_waiting = self.is_waiting.lock();
        if *is_waiting && let Poll::Ready(chunk) = self.poll(&mut is_waiting) {
            self.queue.push_chunk(self.number, chunk);
        }
    }
}

impl<Q: ChunkQueue> Wake for StreamReader<Q> {
    // Spawned, because a waker can be called under locks that polling takes.
    fn wake(self: Arc<Self>) {
        let runtime = self.runtime.clone();
        runtime.spawn(async move { self.on_wake() });
    }
}
