//! The state of an adaptive limit and its queue, as plain data.

use std::time::Instant;

use serde::Serialize;

use crate::schedule::SchedulerView;
use crate::snapshot::LimitSnapshot;

/// The state of an adaptive limit and its queue at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct AdaptiveLimitSnapshot {
    /// Current limit, in slots.
    pub limit: usize,
    /// The measurements of the limit, and its latest changes. Always `Some` in the snapshot of a
    /// layer.
    pub adaptive: Option<LimitSnapshot>,
    /// Number of slots in use now.
    pub in_flight: usize,
    /// Maximum number of slots that were in use at the same time since the limit was created.
    pub peak_in_flight: usize,
    /// Number of calls that wait for a slot now.
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
