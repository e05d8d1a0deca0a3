//! The queue of completions (results of native futures) for one event loop.

use std::sync::Arc;

use pyo3::prelude::*;
use tidegate_bindings::{Chunk, ChunkQueue, ResultQueue};

use super::loop_actions::LoopAction;
use super::loop_waker::LoopWaker;

/// A result that the thread of the event loop converts into a Python value.
pub(crate) trait Outcome: Send {
    /// Converts the result into the Python value that the awaiting coroutine receives. An error of
    /// the gate is returned as an exception object, which the coroutine raises.
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// The result of a wait that has no value, such as the wait until an upload can take its next
/// chunk. None in Python.
pub(crate) struct Ready;

impl Outcome for Ready {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// An entry of a [`Queue`]: the end of a native future, or an action for the event loop.
pub(super) enum Completion {
    /// The output of the native future with this number.
    Outcome(u64, Box<dyn Outcome>),
    /// The native future with this number panicked.
    Panicked(u64),
    /// An action for the thread of the event loop, such as starting the task of an exchange.
    Action(Box<dyn LoopAction>),
}

/// Completions (the results of native futures) that workers push and one event loop takes in
/// batches.
pub(crate) struct Queue {
    results: ResultQueue<Completion>,
    pub(super) waker: LoopWaker,
}

impl Queue {
    pub(super) fn new(waker: LoopWaker) -> Arc<Self> {
        Arc::new(Self { results: ResultQueue::new(), waker })
    }

    /// Adds a completion, and wakes the event loop if the queue was empty.
    pub(super) fn push(&self, completion: Completion) {
        if self.results.push(completion) {
            self.waker.wake();
        }
    }

    /// Removes and returns all completions, in the order in which they were pushed.
    pub(super) fn take(&self) -> Vec<Completion> {
        // Cleared first: a completion that is pushed in between sets the signal again, which causes
        // one needless wake-up at most.
        self.waker.clear();
        self.results.take()
    }

    /// Closes the queue: drops the completions in it, and later ones when they are pushed. Wakes
    /// the event loop.
    pub(super) fn close(&self) {
        self.results.close();
        self.waker.wake();
    }

    /// Returns `true` if no completion is waiting to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Returns `true` if [`Queue::close`] was called.
    pub(super) fn is_closed(&self) -> bool {
        self.results.is_closed()
    }
}

impl ChunkQueue for Queue {
    fn push_chunk(&self, number: u64, chunk: Chunk) {
        self.push(Completion::Outcome(number, Box::new(chunk)));
    }
}
