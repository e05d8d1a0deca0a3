//! The results of workers, on their way to one event loop.

use std::sync::Arc;

use pyo3::prelude::*;
use tidegate_bindings::{Chunk, ChunkQueue, ResultQueue};

use super::bell::Bell;
use super::mailbox::Post;

/// A result that the thread of the loop turns into a Python value.
pub(crate) trait Outcome: Send {
    /// Returns the value for the awaiting coroutine. An error of the gate is a value too: the
    /// coroutine raises it.
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// An entry of a queue.
pub(super) enum Done {
    /// The result of the work with this number.
    Outcome(u64, Box<dyn Outcome>),
    /// The work with this number panicked.
    Panicked(u64),
    /// An action for the loop's thread that no work asked for.
    Post(Box<dyn Post>),
}

/// Results that workers push and one event loop takes in batches.
pub(crate) struct Queue {
    results: ResultQueue<Done>,
    pub(super) bell: Bell,
}

impl Queue {
    pub(super) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { results: ResultQueue::new(), bell })
    }

    /// Adds an entry, and wakes the loop for the first entry of a batch.
    pub(super) fn push(&self, done: Done) {
        if self.results.push(done) {
            self.bell.ring();
        }
    }

    /// Removes and returns all entries.
    pub(super) fn take(&self) -> Vec<Done> {
        // Silenced first: an entry that is pushed in between rings again, at worst for nothing.
        self.bell.silence();
        self.results.take()
    }

    /// Drops all entries, and those that are pushed later.
    pub(super) fn close(&self) {
        self.results.close();
        self.bell.ring();
    }

    /// Returns `true` if there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Returns `true` after [`Queue::close`].
    pub(super) fn is_closed(&self) -> bool {
        self.results.is_closed()
    }
}

impl ChunkQueue for Queue {
    fn push_chunk(&self, number: u64, chunk: Chunk) {
        self.push(Done::Outcome(number, Box::new(chunk)));
    }
}
