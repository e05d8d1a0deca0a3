//! Calls back borrowed slots: while the holder of a floor waits and no slot is free, a borrower's
//! call that has no answer yet is cancelled by the driver, and queued again with what it was
//! charged.
//!
//! No more calls are called back than slots that a floor would use, see [`Scheduler::owed`]; so
//! nothing is cancelled in vain.

use std::collections::BTreeMap;
use std::iter::successors;
use std::sync::Arc;
use std::time::Instant;

use super::floors::{Holder, Hungry, slots};
use super::ids::{TenantId, WaiterId};
use super::lanes::Spot;
use super::pool::Pool;
use super::rooms::{ByKind, Rooms};
use super::why::Rule;
use super::{GrantId, Scheduler};
use crate::context::Lane;
use crate::placement::Places;

/// The calls in flight that have no answer yet: those that may be called back, and those that have been and are not back yet.
#[derive(Debug, Default)]
pub(super) struct Lent {
    unanswered: BTreeMap<GrantId, (TenantId, Lane)>,
    called_back: BTreeMap<GrantId, (TenantId, Lane)>,
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
    /// Returns a call to be called back now, where that is configured: the youngest without an
    /// answer that holds more than the floors of its tenant and of its lane, while somebody who
    /// holds less than its floor waits for nothing but a slot. Ask until `None`; each is named
    /// once.
    pub fn reclaim(&mut self, now: Instant) -> Option<GrantId> {
        self.lent.as_ref()?;
        // At a pool a slot may be free that is none for whom it is owed to. Above a limit that was
        // lowered, no slot comes free with a call.
        let limit = self.upstream.slots();
        let is_pool = self.upstream.pool().is_some();
        let is_full = is_pool || (self.lack() == Some(Rule::Slots) && self.in_flight <= limit);
        if !is_full || self.draining || self.cooldown.ready(now, limit, false).is_err() {
            return None;
        }
        self.unpark(now);
        let mut owed = self.owed(now);
        let lent = self.lent.as_ref()?;
        if owed.len() <= lent.called_back.len() {
            return None;
        }
        let serves = |id: &GrantId, places: &Places| {
            let is_there = |pool: &Pool| pool.is_at(*id, *places);
            self.upstream.pool().is_none_or(is_there)
        };
        for id in lent.called_back.keys() {
            if let Some(at) = owed.iter().position(|places| serves(id, places)) {
                owed.swap_remove(at);
            }
        }
        let (id, of) = lent.unanswered.iter().rev().find(|(id, (tenant, lane))| {
            owed.iter().any(|places| serves(id, places)) && self.borrows(lent, *tenant, *lane)
        })?;
        let (id, of) = (*id, *of);
        let lent = self.lent.as_mut()?;
        lent.unanswered.remove(&id);
        lent.called_back.insert(id, of);
        Some(id)
    }

    /// Returns the slots that floors would use if they came free: one entry for each waiting call
    /// that would go, with the replicas of a pool that it may go to. A call that is below the
    /// floors of both its tenant and its lane is one entry.
    ///
    /// If the floors fill the limit, a floor of less than a slot goes first only every other time, and
    /// is owed nothing: the calls that go in between would be called back each time.
    fn owed(&mut self, now: Instant) -> Vec<Places> {
        let mut rooms = self.rooms_but_slots(now);
        let mut calls = BTreeMap::<(TenantId, Lane), usize>::new();
        let mut owed = Vec::new();
        let is_filled = self.floors.fill(self.upstream.slots());
        for Hungry { holder, missing, rounded } in self.hungry() {
            if rounded && is_filled {
                continue;
            }
            let counted = match holder {
                Holder::Tenant(id) => of_tenant(&calls, id),
                Holder::Lane(lane) => calls.iter().filter(|(line, _)| line.1 == lane).map(|(_, of)| of).sum(),
            };
            let mut missing = missing.saturating_sub(counted);
            if missing == 0 {
                continue;
            }
            if self.is_sized() {
                // Where calls may lack more than slots, no more is known than that one could go.
                if let Some(next) = self.first_for(now, holder, &mut rooms)
                    && let Some((line, places)) = self.places_without_slot(next.call)
                    && calls.insert(line, 1).is_none()
                {
                    owed.push(places);
                }
                continue;
            }
            // A line without a call to add is of a tenant that has been counted.
            let lines = self.lines_of(now, holder, missing + calls.len());
            for (id, lane) in lines {
                let Some(tenant) = self.tenants.get(id) else { continue };
                let of_tenant = of_tenant(&calls, id);
                let of_line = calls.entry((id, lane)).or_default();
                let more = (tenant.lines[lane as usize].calls.len() - *of_line)
                    .min(tenant.cap.saturating_sub(tenant.in_flight + of_tenant))
                    .min(missing);
                *of_line += more;
                missing -= more;
                owed.extend(std::iter::repeat_n(Places::NONE, more));
            }
        }
        owed
    }

    /// Returns what there is to take beside what is held, if there were slots.
    fn rooms_but_slots(&mut self, now: Instant) -> Rooms {
        let mut rooms = self.rooms(now);
        rooms.replicas = self.replicas_but_slots(None);
        let held = self.hold_for_front(now, &rooms).map(|hold| hold.held).unwrap_or_default();
        Rooms { shared: held.leave(rooms.shared), replicas: self.replicas_but_slots(held.at), ..rooms }
    }

    fn replicas_but_slots(&self, held: Option<usize>) -> Option<Arc<ByKind>> {
        self.upstream.pool().map(|pool| Arc::new(pool.by_kind_but_slots(held)))
    }

    /// Returns the first lines, at most so many, whose calls go by that floor.
    fn lines_of(&mut self, now: Instant, holder: Holder, most: usize) -> Vec<(TenantId, Lane)> {
        match holder {
            Holder::Tenant(tenant) => self.turns(now).map(|turn| (tenant, turn.lane)).collect(),
            Holder::Lane(lane) => {
                let next = |after: Option<&Spot>| self.lanes.next_fit(lane, after, &Rooms::UNBOUNDED);
                let spots = successors(next(None), |spot| next(Some(spot)));
                spots.take(most).map(|spot| (spot.tenant, lane)).collect()
            }
        }
    }

    /// Returns a waiting call's line and, of a pool, the replicas where a slot that came free would
    /// be its own. `None`: there is none, or one of the replicas that it may go to has a slot.
    fn places_without_slot(&self, call: WaiterId) -> Option<((TenantId, Lane), Places)> {
        let waiter = self.waiters.get(call)?;
        let line = (waiter.tenant, waiter.ticket.lane);
        let Some(pool) = self.upstream.pool() else { return Some((line, Places::NONE)) };
        let places = pool.would_fit_at(&waiter.claim, self.in_flight);
        let has_slot = pool.has_slot_for(waiter.claim.kind, self.in_flight);
        (!has_slot && !places.is_empty()).then_some((line, places))
    }

    /// Returns `true` if the tenant and the lane hold more than their floors, also without what was
    /// called back of them.
    fn borrows(&self, lent: &Lent, tenant: TenantId, lane: Lane) -> bool {
        let limit = self.upstream.slots();
        let more_than = |floor: f64, held: usize, is_of: &dyn Fn(&(TenantId, Lane)) -> bool| {
            let more = held.saturating_sub(slots(floor, limit));
            more > 0 && lent.called_back.values().filter(|line| is_of(line)).take(more).count() < more
        };
        let floor = self.settings.lanes[lane as usize].floor;
        more_than(floor, self.by_lane[lane as usize], &|line| line.1 == lane)
            && self
                .tenants
                .get(tenant)
                .is_some_and(|of| more_than(of.floor, of.in_flight, &|line| line.0 == tenant))
    }
}

/// Returns the sum of a tenant's counts, over its lines.
fn of_tenant(counts: &BTreeMap<(TenantId, Lane), usize>, id: TenantId) -> usize {
    Lane::ALL.into_iter().filter_map(|lane| counts.get(&(id, lane))).sum()
}
