//! First come, first served, regardless of tenant, like a semaphore.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Call, Policy};

/// First come, first served. Holds the indices of the waiting calls.
#[derive(Debug, Default)]
pub(crate) struct Fifo(VecDeque<usize>);

impl Policy for Fifo {
    fn arrive(&mut self, _: Duration, id: usize, _: &Call) -> bool {
        self.0.push_back(id);
        true
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        self.0.pop_front()
    }
}
