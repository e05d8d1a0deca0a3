//! How far an answer has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far an answer has come, in output tokens: written as they are seen, read when admission decides. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// So many tokens have come so far.
    pub fn reached(&self, tokens: u64) {
        self.0.store(tokens, Ordering::Relaxed);
    }

    /// So many more have come.
    pub fn grew(&self, tokens: u64) {
        self.0.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
