//! Calls back borrowed slots: while the holder of a floor waits and no slot is free, a borrower's
//! call that has no answer yet is cancelled by the driver, and queued again with what it was
//! charged.
//!
//! No more calls are called back than slots that a floor would use, see [`owed`]; so
//! nothing is cancelled in vain.

use std::collections::BTreeMap;
use std::iter::successors;

use super::GrantId;
use super::available::Available;
use super::floors::{Holder, UnderFloor, slots};
use super::ids::{TenantId, WaiterId};
use super::lanes::LineKey;
use super::select::Selector;
use crate::context::Lane;
use crate::placement::ReplicaSet;

/// The calls in flight that have no answer yet: those that may be called back, and those that have been and are not back yet.
#[derive(Debug, Default)]
pub(super) struct Borrowed {
    unanswered: BTreeMap<GrantId, (TenantId, Lane)>,
    preempted: BTreeMap<GrantId, (TenantId, Lane)>,
}

impl Borrowed {
    pub(super) fn on_dispatch(&mut self, id: GrantId, tenant: TenantId, lane: Lane) {
        self.unanswered.insert(id, (tenant, lane));
    }

    /// It has an answer, or is back.
    pub(super) fn settled(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.preempted.remove(&id);
    }
}

impl Borrowed {
    /// Returns a call to be called back now: the youngest without an answer that holds more than the
    /// floors of its tenant and of its lane, while somebody who holds less than its floor waits for
    /// nothing but a slot.
    pub(super) fn next<W>(&mut self, mut selector: Selector<'_, W>) -> Option<GrantId> {
        let capacity = &mut selector.capacity;
        if !capacity.upstream.may_lack_slots(capacity.in_flight())
            || capacity.upstream.ready(selector.now, false).is_err()
        {
            return None;
        }
        selector.queue.unpark(selector.now);
        let mut owed = owed(&mut selector);
        if owed.len() <= self.preempted.len() {
            return None;
        }
        let upstream = &selector.capacity.upstream;
        for id in self.preempted.keys() {
            if let Some(at) = owed.iter().position(|places| upstream.is_at(*id, *places)) {
                owed.swap_remove(at);
            }
        }
        let (id, of) = self.unanswered.iter().rev().find(|(id, (tenant, lane))| {
            owed.iter().any(|places| upstream.is_at(**id, *places)) && self.borrows(&selector, *tenant, *lane)
        })?;
        let (id, of) = (*id, *of);
        self.unanswered.remove(&id);
        self.preempted.insert(id, of);
        Some(id)
    }

    /// Returns `true` if the tenant and the lane hold more than their floors, also without what was
    /// called back of them.
    fn borrows<W>(&self, selector: &Selector<'_, W>, tenant: TenantId, lane: Lane) -> bool {
        let limit = selector.capacity.slots();
        let more_than = |floor: f64, held: usize, is_of: &dyn Fn(&(TenantId, Lane)) -> bool| {
            let more = held.saturating_sub(slots(floor, limit));
            more > 0 && self.preempted.values().filter(|line| is_of(line)).take(more).count() < more
        };
        let floor = selector.order.floors.share_of(lane);
        more_than(floor, selector.capacity.in_flight_of(lane), &|line| line.1 == lane)
            && selector
                .queue
                .tenants
                .get(tenant)
                .is_some_and(|of| more_than(of.floor, of.in_flight, &|line| line.0 == tenant))
    }
}

/// Returns the slots that floors would use if they came free: one entry for each waiting call
/// that would go, with the replicas of a pool that it may go to. A call that is below the
/// floors of both its tenant and its lane is one entry.
///
/// If the floors fill the limit, a floor of less than a slot goes first only every other time, and
/// is owed nothing: the calls that go in between would be called back each time.
fn owed<W>(selector: &mut Selector<'_, W>) -> Vec<ReplicaSet> {
    let mut available = rooms_but_slots(selector);
    let mut calls = BTreeMap::<(TenantId, Lane), usize>::new();
    let mut owed = Vec::new();
    let is_filled = selector.order.floors.fill(selector.capacity.slots());
    for UnderFloor { holder, missing, rounded } in selector.under_floor() {
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
        if selector.capacity.is_sized() {
            // Where calls may lack more than slots, no more is known than that one could go.
            if let Some(next) = selector.first_for(holder, &mut available)
                && let Some((line, places)) = places_without_slot(selector, next.call)
                && calls.insert(line, 1).is_none()
            {
                owed.push(places);
            }
            continue;
        }
        // A line without a call to add is of a tenant that has been counted.
        let lines = lines_of(selector, holder, missing + calls.len());
        for (id, lane) in lines {
            let Some(tenant) = selector.queue.tenants.get(id) else { continue };
            let of_tenant = of_tenant(&calls, id);
            let of_line = calls.entry((id, lane)).or_default();
            let more = (tenant.lines[lane as usize].calls.len() - *of_line)
                .min(tenant.cap.saturating_sub(tenant.in_flight + of_tenant))
                .min(missing);
            *of_line += more;
            missing -= more;
            owed.extend(std::iter::repeat_n(ReplicaSet::NONE, more));
        }
    }
    owed
}

/// Returns what there is to take beside what is held, if there were slots.
fn rooms_but_slots<W>(selector: &mut Selector<'_, W>) -> Available {
    let available = selector.capacity.available(selector.now);
    let available = selector.capacity.upstream.with_free_slots(available, None);
    let held =
        selector.reserve_for_front(&available).map(|reservation| reservation.resources).unwrap_or_default();
    let available = Available { shared: held.leave(available.shared), ..available };
    selector.capacity.upstream.with_free_slots(available, held.at)
}

/// Returns the first lines, at most so many, whose calls go by that floor.
fn lines_of<W>(selector: &mut Selector<'_, W>, holder: Holder, most: usize) -> Vec<(TenantId, Lane)> {
    match holder {
        Holder::Tenant(tenant) => selector.turns().map(|turn| (tenant, turn.lane)).collect(),
        Holder::Lane(lane) => {
            let lanes = &selector.queue.lanes;
            let next = |after: Option<&LineKey>| lanes.next_fit(lane, after, &Available::UNBOUNDED);
            let keys = successors(next(None), |key| next(Some(key)));
            keys.take(most).map(|key| (key.tenant, lane)).collect()
        }
    }
}

/// Returns a waiting call's line, and the replicas where a slot that came free would be its own:
/// see [`Upstream::slots_for`](super::upstream::Upstream::slots_for).
fn places_without_slot<W>(
    selector: &Selector<'_, W>,
    call: WaiterId,
) -> Option<((TenantId, Lane), ReplicaSet)> {
    let waiter = selector.queue.waiters.get(call)?;
    let places = selector.capacity.upstream.slots_for(&waiter.requirements, selector.capacity.in_flight())?;
    Some(((waiter.tenant, waiter.ticket.lane), places))
}

/// Returns the sum of a tenant's counts, over its lines.
fn of_tenant(counts: &BTreeMap<(TenantId, Lane), usize>, id: TenantId) -> usize {
    Lane::ALL.into_iter().filter_map(|lane| counts.get(&(id, lane))).sum()
}
