//! Values that belong to a tokio runtime and are owned by objects of the host language.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Returns the fork generation of this process: 0 in the first process, and one more than its
/// parent in each forked child process.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Increases the fork generation. Must be called in each forked child process, before any other use
/// of a runtime there. May be called in a handler of `pthread_atfork`.
pub fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A value that is dropped inside the tokio runtime to which it is bound, whichever thread drops
/// it.
///
/// In a forked child process, the runtime of the parent has no threads. The value is therefore not
/// accessible there, and is forgotten instead of dropped.
pub struct RuntimeBound<T> {
    /// The value. `None` only during [`Self::into_inner`] and drop.
    value: Option<T>,
    generation: u64,
    runtime: Handle,
}

impl<T> RuntimeBound<T> {
    /// Binds a value to a runtime. The value will be dropped inside this runtime.
    pub fn new(value: T, runtime: Handle) -> Self {
        Self { value: Some(value), generation: generation(), runtime }
    }

    /// Binds the value to the runtime of the calling thread.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn in_current(value: T) -> Self {
        Self::new(value, Handle::current())
    }

    /// Returns `true` if this process created the value. Returns `false` in a forked child process
    /// that inherited the value from its parent.
    pub fn is_usable(&self) -> bool {
        self.generation == generation()
    }

    /// Returns the runtime to which the value is bound.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns a reference to the value, or `None` if it belongs to the parent of this forked
    /// process.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_usable())
    }

    /// Returns a mutable reference to the value, or `None` if it belongs to the parent of this
    /// forked process.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.is_usable() { self.value.as_mut() } else { None }
    }

    /// Unbinds the value from the runtime and returns it, or `None` if it belongs to the parent of
    /// this forked process. The caller must drop the value inside the runtime.
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
