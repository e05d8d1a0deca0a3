//! The observable state of a limit.

use std::time::Instant;

use serde::Serialize;

use crate::schedule::SchedulerView;
use crate::snapshot::LimitSnapshot;

/// A limit and its queue at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct AdaptiveLimitSnapshot {
    /// The limit in force, in slots.
    pub limit: usize,
    /// What the limit observes, and why it last changed. Always present: the limit of a layer is
    /// never fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// The number of slots held.
    pub in_flight: usize,
    /// The largest number of slots held at once so far.
    pub peak_in_flight: usize,
    /// The number of calls waiting.
    pub queue_depth: usize,
}

impl AdaptiveLimitSnapshot {
    pub(super) fn from_view(view: &SchedulerView, now: Instant) -> Self {
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|view| LimitSnapshot::from_view(view, now)),
            in_flight: view.in_flight,
            peak_in_flight: view.peak,
            queue_depth: view.waiting,
        }
    }
}
