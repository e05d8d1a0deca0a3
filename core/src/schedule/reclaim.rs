//! Calling back what was lent: where a floor's holder waits and no slot is free, a borrower's call that has no answer yet is named, for the driver
//! to cancel and to queue again with what it was charged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::floors::slots;
use super::ids::{TenantId, WaiterId};
use super::pool::Pool;
use super::{GrantId, Scheduler};
use crate::context::Lane;
use crate::placement::Places;

/// The calls in flight that have no answer yet: those that may be called back, and those that have been and are not back yet.
#[derive(Debug, Default)]
pub(super) struct Lent {
    unanswered: BTreeMap<GrantId, (TenantId, Lane)>,
    called_back: BTreeSet<GrantId>,
}

impl Lent {
    pub(super) fn went(&mut self, id: GrantId, tenant: TenantId, lane: Lane) {
        self.unanswered.insert(id, (tenant, lane));
    }

    /// It has an answer, or is back.
    pub(super) fn settled(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.called_back.remove(&id);
    }
}

impl<W> Scheduler<W> {
    /// The call to be called back now, where that is configured: the youngest without an answer that holds more than the floors of its tenant and
    /// of its lane, while somebody who holds less than its floor waits for nothing but a slot. Ask until `None`; each is named once.
    pub fn reclaim(&mut self, now: Instant) -> Option<GrantId> {
        let called_back = self.lent.as_ref()?.called_back.len();
        let is_pool = self.upstream.pool().is_some();
        // At a pool a slot may be free that is none for whom it is owed to.
        let idle = !is_pool && self.has_slot();
        if idle || self.draining || self.cooldown.ready(now, self.upstream.slots()).is_err() {
            return None;
        }
        self.unpark(now);
        let mut rooms = self.rooms(now);
        rooms.replicas = self.upstream.pool().map(|pool| Arc::new(pool.by_kind_but_slots()));
        let mut wanted = 0;
        let mut at = Places::NONE;
        for hungry in self.hungry() {
            if let Some(next) = self.first_for(now, hungry.holder, &rooms)
                && let Some(places) = self.places_without_slot(next.call)
            {
                // Where calls may lack more than slots, no more is known than that one could go.
                wanted += if self.is_sized() { 1 } else { hungry.missing };
                at = at.or(places);
            }
        }
        if wanted <= called_back {
            return None;
        }
        let lent = self.lent.as_ref()?;
        let (id, _) = lent.unanswered.iter().rev().find(|(id, (tenant, lane))| {
            let is_there = |pool: &Pool| pool.is_at(**id, at);
            self.upstream.pool().is_none_or(is_there) && self.borrows(*tenant, *lane)
        })?;
        let id = *id;
        let lent = self.lent.as_mut()?;
        lent.unanswered.remove(&id);
        lent.called_back.insert(id);
        Some(id)
    }

    /// Of a pool, the replicas in the choice that a waiting call may go to; `None`: one of them has a slot.
    fn places_without_slot(&self, call: WaiterId) -> Option<Places> {
        let Some(pool) = self.upstream.pool() else { return Some(Places::NONE) };
        let kind = self.waiters.get(call)?.claim.kind;
        (!pool.has_slot_for(kind, self.in_flight)).then(|| pool.choice_of(kind))
    }

    fn borrows(&self, tenant: TenantId, lane: Lane) -> bool {
        let limit = self.upstream.slots();
        let of_lane = slots(self.settings.lanes[lane as usize].floor, limit);
        self.by_lane[lane as usize] > of_lane
            && self.tenants.get(tenant).is_some_and(|tenant| tenant.in_flight > slots(tenant.floor, limit))
    }
}
