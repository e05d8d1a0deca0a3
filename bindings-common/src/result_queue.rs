//! A queue of results from the worker threads of the runtime to one event loop.

use parking_lot::Mutex;

/// Results that worker threads push and one event loop takes in batches.
pub struct ResultQueue<T>(Mutex<Items<T>>);

struct Items<T> {
    results: Vec<T>,
    is_closed: bool,
}

impl<T> ResultQueue<T> {
    /// Returns an open queue without results.
    #[allow(clippy::new_without_default, reason = "a queue belongs to one event loop")]
    pub fn new() -> Self {
        Self(Mutex::new(Items { results: Vec::new(), is_closed: false }))
    }

    /// Adds a result. Returns `true` if the event loop must be woken because the queue was empty. A
    /// closed queue drops the result and returns `false`.
    pub fn push(&self, result: T) -> bool {
        let mut items = self.0.lock();
        if items.is_closed {
            // A result can own a slot, whose release runs other code: never under the lock.
            drop(items);
            drop(result);
            return false;
        }
        items.results.push(result);
        items.results.len() == 1
    }

    /// Removes and returns all results, in the order in which they were pushed.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().results)
    }

    /// Returns `true` if no result is waiting to be taken.
    pub fn is_empty(&self) -> bool {
        self.0.lock().results.is_empty()
    }

    /// Returns `true` if [`ResultQueue::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Closes the queue: drops the results in it, and later ones when they are pushed.
    pub fn close(&self) {
        let dropped = {
            let mut items = self.0.lock();
            items.is_closed = true;
            std::mem::take(&mut items.results)
        };
        drop(dropped);
    }
}
