//! Bounds of the queue, and who gives up its place when they are reached.
//!
//! There are three: for each tenant, for each lane, and for all together. A more urgent call that finds a bound reached takes the place of the
//! youngest of the lowest lane below its own, inside that bound, of the tenant with the most of them. Retries give up nothing, nor do
//! tenants that are exempt.

use super::ids::{TenantId, WaiterId};
use super::lazy_order::LazyOrder;
use super::tenants::Tenant;
use crate::context::Lane;

/// The lines that may be shed from, the longest last.
#[derive(Debug, Default)]
pub(super) struct ShedCandidates {
    by_lane: [LazyOrder<usize>; 3],
}

/// Whether one more call may wait.
pub(super) enum QueueSpace {
    Free,
    /// In the place of this one.
    Replacing(WaiterId),
    Full,
}

impl ShedCandidates {
    /// Follows a line, of which one call more or less waits now.
    pub(super) fn update(&mut self, lane: Lane, id: TenantId, tenant: &Tenant) {
        if tenant.shed {
            let fresh = tenant.lines[lane as usize].fresh;
            self.by_lane[lane as usize].set(id, (fresh > 0).then_some(fresh));
        }
    }

    pub(super) fn longest(&mut self, lane: Lane) -> Option<TenantId> {
        Some(self.by_lane[lane as usize].order().last()?.1)
    }
}
