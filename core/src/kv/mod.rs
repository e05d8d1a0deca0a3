//! Memory for keys and values: how many tokens a self-hosted engine can hold at once, and how many the calls in flight will come to hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::estimate::Demand;

/// How far an answer has come, in output tokens: written as they are seen, read when admission decides.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// So many tokens have come so far.
    pub fn reached(&self, tokens: u64) {
        self.0.store(tokens, Ordering::Relaxed);
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A call's place in the memory. Goes back by [`Kv::release`], once.
#[derive(Debug)]
pub struct Place {
    pub(crate) id: u64,
}

/// The books of one engine's memory.
#[derive(Debug)]
pub struct Kv {
    capacity: u64,
    held: u64,
    next: u64,
}

impl Kv {
    /// An engine that holds so many tokens, of which the share `headroom` is kept free.
    pub fn new(capacity: u64, headroom: f64) -> Self {
        Self { capacity: (capacity as f64 * (1.0 - headroom)) as u64, held: 0, next: 0 }
    }

    /// What a call will come to hold.
    pub fn need(&self, demand: &Demand) -> u32 {
        u32::try_from(demand.total()).unwrap_or(u32::MAX)
    }

    /// The most that one more call may come to hold.
    pub fn room(&mut self) -> u32 {
        u32::try_from(self.capacity.saturating_sub(self.held)).unwrap_or(u32::MAX)
    }

    /// The most that any call may hold, however idle the engine is.
    pub fn most(&self) -> u64 {
        self.capacity
    }

    /// A call is admitted; `progress` says how far its answer has come.
    pub fn admit(&mut self, demand: &Demand, progress: Progress) -> Place {
        let _ = progress;
        self.held += demand.total();
        self.next += 1;
        Place { id: demand.total() }
    }

    /// It has ended.
    pub fn release(&mut self, place: Place) {
        self.held = self.held.saturating_sub(place.id);
    }
}
