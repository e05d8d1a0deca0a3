//! Calling back what was lent: where a floor's holder waits and no slot is free, a borrower's call that has no answer yet is named, for the driver
//! to cancel and to queue again with what it was charged.

use std::collections::BTreeMap;
use std::time::Instant;

use super::floors::slots;
use super::ids::TenantId;
use super::{Grant, GrantId, Scheduler};
use crate::context::Lane;

/// The calls in flight that have no answer yet, and how many have been called back and are not back yet.
#[derive(Debug, Default)]
pub(super) struct Lent {
    unanswered: BTreeMap<GrantId, (TenantId, Lane)>,
    called_back: usize,
}

impl Lent {
    pub(super) fn went(&mut self, id: GrantId, tenant: TenantId, lane: Lane) {
        self.unanswered.insert(id, (tenant, lane));
    }

    pub(super) fn answered(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
    }

    pub(super) fn ended(&mut self, grant: &Grant) {
        if self.unanswered.remove(&grant.id).is_none() && !grant.answered {
            self.called_back = self.called_back.saturating_sub(1);
        }
    }
}

impl<W> Scheduler<W> {
    /// The call to be called back now, where that is configured: the youngest without an answer that holds more than the floors of its tenant and
    /// of its lane, while somebody who holds less than its floor waits for nothing but a slot. Ask until `None`; each is named once.
    pub fn reclaim(&mut self, now: Instant) -> Option<GrantId> {
        let called_back = self.lent.as_ref()?.called_back;
        if self.has_slot() || self.draining || self.cooldown.ready(now, self.settings.limit).is_err() {
            return None;
        }
        self.unpark(now);
        let room = self.stock.room(now);
        let mut wanted = 0;
        for (holder, missing) in self.hungry() {
            if self.first_for(now, holder, &room).is_some() {
                wanted += missing;
            }
        }
        if wanted <= called_back {
            return None;
        }
        let lent = self.lent.as_ref()?;
        let (id, _) =
            lent.unanswered.iter().rev().find(|(_, (tenant, lane))| self.borrows(*tenant, *lane))?;
        let id = *id;
        let lent = self.lent.as_mut()?;
        lent.unanswered.remove(&id);
        lent.called_back += 1;
        Some(id)
    }

    fn borrows(&self, tenant: TenantId, lane: Lane) -> bool {
        let limit = self.settings.limit;
        let of_lane = slots(self.settings.lanes[lane as usize].floor, limit);
        self.by_lane[lane as usize] > of_lane
            && self.tenants.get(tenant).is_some_and(|tenant| tenant.in_flight > slots(tenant.floor, limit))
    }
}
