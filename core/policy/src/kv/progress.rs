//! Progress of an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Output tokens of an answer so far: written by the observer, read by admission. Clones share the
/// count.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Sets the number of tokens so far.
    pub fn reached(&self, tokens: u64) {
        self.0.store(tokens, Ordering::Relaxed);
    }

    /// Adds to the number of tokens so far.
    pub fn grew(&self, tokens: u64) {
        self.0.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Returns the number of tokens so far.
    pub fn tokens(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
