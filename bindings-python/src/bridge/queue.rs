//! What workers finished, on its way to one event loop.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;

use super::bell::Bell;
use super::mailbox::Post;

/// A result that becomes a Python value once the loop's thread is at it.
pub(crate) trait Outcome: Send {
    /// The value for the awaiting coroutine. An error of the gate is a value too: the coroutine raises it.
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

pub(super) enum Done {
    /// The work of that number ended so.
    Outcome(u64, Box<dyn Outcome>),
    /// The work of that number panicked.
    Lost(u64),
    /// Something of its own accord.
    Post(Box<dyn Post>),
}

/// Filled by workers, drained in batches by one loop.
pub(crate) struct Queue {
    items: Mutex<Items>,
    pub(super) bell: Bell,
}

struct Items {
    done: Vec<Done>,
    closed: bool,
}

impl Queue {
    pub(super) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { items: Mutex::new(Items { done: Vec::new(), closed: false }), bell })
    }

    /// Rings only for the first of a batch. After [`Queue::close`] what is pushed is dropped.
    pub(super) fn push(&self, done: Done) {
        let first = {
            let mut items = self.items.lock();
            if items.closed {
                drop(items);
                drop(done);
                return;
            }
            items.done.push(done);
            items.done.len() == 1
        };
        if first {
            self.bell.ring();
        }
    }

    /// Everything so far.
    pub(super) fn take(&self) -> Vec<Done> {
        // Silence first: what is pushed between the two rings again, for nothing at worst.
        self.bell.silence();
        std::mem::take(&mut self.items.lock().done)
    }

    /// Drops what is there and whatever comes.
    pub(super) fn close(&self) {
        let rest = {
            let mut items = self.items.lock();
            items.closed = true;
            std::mem::take(&mut items.done)
        };
        drop(rest);
        self.bell.ring();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.lock().done.is_empty()
    }

    pub(super) fn closed(&self) -> bool {
        self.items.lock().closed
    }
}
