//! Shedding: which waiting call is removed when a more urgent one finds the queue full.
//!
//! The queue has three bounds: for each tenant, for each lane, and for all together. If a more
//! urgent call finds the bound of its tenant or the total bound reached, the youngest call of the
//! lowest lane below its own is shed, from the tenant with the most of them. Retries and exempt
//! tenants are not shed.

use super::ids::{TenantId, WaiterId};
use super::lazy_order::LazyOrder;
use super::tenants::Tenant;
use crate::Lane;

/// The lines that may be shed from, the longest last.
#[derive(Debug, Default)]
pub(super) struct ShedCandidates {
    by_lane: [LazyOrder<usize>; 3],
}

/// Whether one more call may wait.
pub(super) enum QueueSpace {
    Free,
    /// Only if this call is shed.
    Replacing(WaiterId),
    Full,
}

impl ShedCandidates {
    /// Updates a line whose number of calls has changed.
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
