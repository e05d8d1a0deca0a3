//! What a person would want to know of a limit.

use std::time::Instant;

use serde::Serialize;

use crate::observe::LimitSnapshot;
use crate::schedule::View;

/// A limit and its queue, as they stand.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Slots in force.
    pub limit: usize,
    /// What it sees, and why it moved. Always there: the limit of a layer is never fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots held.
    pub in_flight: usize,
    /// The most slots ever held at once.
    pub peak_in_flight: usize,
    /// Calls waiting.
    pub queue_depth: usize,
}

impl Snapshot {
    pub(super) fn of(view: &View, now: Instant) -> Self {
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|seen| LimitSnapshot::of(seen, now)),
            in_flight: view.in_flight,
            peak_in_flight: view.peak,
            queue_depth: view.waiting,
        }
    }
}
