//! What a scheduler shows of itself.

use std::sync::Arc;
use std::time::Duration;

use crate::cooldown::State;

/// A scheduler's state, for snapshots and metrics.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct View {
    pub limit: usize,
    pub in_flight: usize,
    pub peak: usize,
    pub waiting: usize,
    pub state: State,
    pub cool_for: Option<Duration>,
    pub gap: Duration,
    pub up: Duration,
    pub tenants: Vec<TenantView>,
}

/// One tenant's part of a [`View`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TenantView {
    pub name: Arc<str>,
    pub in_flight: usize,
    pub peak: usize,
    pub waiting: usize,
}
