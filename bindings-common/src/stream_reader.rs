//! Reads response bodies on an event loop.
//!
//! A read that finds a chunk returns it at once, on the thread of the loop. Otherwise, the worker
//! that receives the next bytes takes one chunk and queues it for the loop. Nothing is requested
//! from the upstream before the reader asks for it. Each chunk wakes the loop once and no worker;
//! taking the chunk on the loop's thread would wake the connection across threads.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::body_stream::{BodyStream, Chunk};

/// The queue of an event loop, which receives the results of reads that had to wait.
pub trait ChunkQueue: Send + Sync + 'static {
    /// Queues the result of the read with this number.
    fn push_chunk(&self, number: u64, chunk: Chunk);
}

/// The reader of one body on one event loop. It is also the waker that the body stores.
pub struct StreamReader<Q> {
    queue: Arc<Q>,
    number: u64,
    runtime: Handle,
    // Weak, because the body in the stream holds the reader.
    stream: Weak<BodyStream>,
    // `true` while a read waits. Locked while polling, so that no chunk is taken that was not asked
    // for.
    is_waiting: Mutex<bool>,
}

impl<Q: ChunkQueue> StreamReader<Q> {
    /// Returns a reader for `stream`. If a read has to wait, its result is pushed to `queue` under
    /// `number`.
    pub fn new(queue: Arc<Q>, number: u64, runtime: Handle, stream: &Arc<BodyStream>) -> Arc<Self> {
        let (stream, is_waiting) = (Arc::downgrade(stream), Mutex::new(false));
        Arc::new(Self { queue, number, runtime, stream, is_waiting })
    }

    /// Returns the number under which results are queued.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns `true` if the results of waiting reads go to this queue.
    pub fn queues_to(&self, queue: &Arc<Q>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Reads a chunk. `Pending` means that the result will be pushed to the queue.
    pub fn read(self: &Arc<Self>) -> Poll<Chunk> {
        self.poll(&mut self.is_waiting.lock())
    }

    /// Polls the body once, with this reader as the waker, and sets `is_waiting` to whether the
    /// read is pending.
    fn poll(self: &Arc<Self>, is_waiting: &mut bool) -> Poll<Chunk> {
        let Some(stream) = self.stream.upgrade() else { return Poll::Ready(None) };
        let waker = Waker::from(self.clone());
        let polled = stream.poll(&mut Context::from_waker(&waker));
        *is_waiting = polled.is_pending();
        polled
    }

    /// Continues a read that waits, and queues its result. Has no effect if no read waits.
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
