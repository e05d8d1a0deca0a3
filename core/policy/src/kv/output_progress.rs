//! Number of output tokens of an answer in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of output tokens of an answer so far. The response body updates it, and
/// [`Kv`](super::Kv) reads it. Clones share the number.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Sets the number of output tokens so far.
    pub fn set(&self, tokens: u64) {
        self.0.store(tokens, Ordering::Relaxed);
    }

    /// Adds to the number of output tokens so far.
    pub fn add(&self, tokens: u64) {
        self.0.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Returns the number of output tokens so far.
    pub fn tokens(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
