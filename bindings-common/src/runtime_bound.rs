//! Values that belong to a runtime and are owned by objects of the host language.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Returns the number of forks between the first process and this one.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Begins a new generation. Called in the child of each fork, before anything else.
pub fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A value that is dropped inside the runtime in which it was made, whichever thread drops it.
///
/// In the child of a fork the runtime of the parent has no threads. There the value is not
/// accessible, and is forgotten instead of dropped.
pub struct RuntimeBound<T> {
    /// `None` only while it is dropped or taken.
    value: Option<T>,
    generation: u64,
    runtime: Handle,
}

impl<T> RuntimeBound<T> {
    /// Binds the value to a runtime.
    pub fn new(value: T, runtime: Handle) -> Self {
        Self { value: Some(value), generation: generation(), runtime }
    }

    /// Binds the value to the current runtime. Panics outside a runtime.
    pub fn here(value: T) -> Self {
        Self::new(value, Handle::current())
    }

    /// Returns `true` unless the value belongs to the parent of a fork.
    pub fn is_usable(&self) -> bool {
        self.generation == generation()
    }

    /// Returns the runtime.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the value, unless it belongs to the parent of a fork.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_usable())
    }

    /// Returns the value, unless it belongs to the parent of a fork.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.is_usable() { self.value.as_mut() } else { None }
    }

    /// Returns the owned value, unless it belongs to the parent of a fork. The caller drops the
    /// value inside the runtime.
    pub fn into_inner(mut self) -> Option<T> {
        if self.is_usable() { self.value.take() } else { None }
    }
}

impl<T> Drop for RuntimeBound<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.is_usable() {
            let _context = self.runtime.enter();
            drop(value);
        } else {
            std::mem::forget(value);
        }
    }
}
