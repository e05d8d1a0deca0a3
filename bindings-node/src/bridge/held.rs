//! A value of the runtime's world that a JavaScript object owns.

use tokio::runtime::Handle;

/// Drops its value inside the runtime, on whatever thread the garbage collector runs.
pub(crate) struct Held<T> {
    // Taken only by drop.
    value: Option<T>,
    runtime: Handle,
}

impl<T> Held<T> {
    pub(crate) fn new(value: T, runtime: Handle) -> Self {
        Self { value: Some(value), runtime }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The value itself, to be used on a thread of the runtime or one that is inside it.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        self.value.take()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut()
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let _context = self.runtime.enter();
        drop(self.value.take());
    }
}
