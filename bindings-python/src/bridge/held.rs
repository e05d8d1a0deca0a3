//! A value of the runtime's world that a Python object owns.

use tokio::runtime::Handle;

use super::runtime;

/// Drops its value inside the runtime it was made in; in a forked child, where that runtime has no threads, forgets it instead.
pub(crate) struct Held<T> {
    value: Option<T>,
    generation: u64,
    runtime: Handle,
}

impl<T> Held<T> {
    pub(crate) fn new(value: T, runtime: Handle) -> Self {
        Self { value: Some(value), generation: runtime::generation(), runtime }
    }

    /// Whether it was made on this side of the last fork.
    pub(crate) fn usable(&self) -> bool {
        self.generation == runtime::generation()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The value, unless it belongs to the parent of a fork.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.usable())
    }

    /// The value, unless it belongs to the parent of a fork.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if self.usable() { self.value.as_mut() } else { None }
    }
}

impl<T> Held<T> {
    /// The value to keep, unless it belongs to the parent of a fork.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        if self.usable() { self.value.take() } else { None }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.usable() {
            let _context = self.runtime.enter();
            drop(value);
        } else {
            std::mem::forget(value);
        }
    }
}
