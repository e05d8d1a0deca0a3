//! Preemption of borrowed slots.
//!
//! While the holder of a floor waits and no slot is free, the driver cancels a borrower's call that
//! has no answer yet, and queues it again with its charge.
//!
//! No more calls are preempted than slots that floors would use (see [`owed`]), so that no call is
//! cancelled in vain.

use std::collections::BTreeMap;
use std::iter::successors;

use super::GrantId;
use super::available::Available;
use super::floors::{Holder, UnderFloor, slots};
use super::ids::{TenantId, WaiterId};
use super::lanes::LineKey;
use super::select::Selector;
use crate::Lane;
use crate::placement::ReplicaSet;

/// The calls in flight without an answer: those that may be preempted, and those preempted but not
/// yet released.
#[derive(Debug, Default)]
pub(super) struct Borrowed {
    unanswered: BTreeMap<GrantId, (TenantId, Lane)>,
    preempted: BTreeMap<GrantId, (TenantId, Lane)>,
}

impl Borrowed {
    pub(super) fn on_dispatch(&mut self, id: GrantId, tenant: TenantId, lane: Lane) {
        self.unanswered.insert(id, (tenant, lane));
    }

    /// Removes a call that has an answer or was released.
    pub(super) fn settled(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.preempted.remove(&id);
    }
}

impl Borrowed {
    /// Returns the call to preempt now: the youngest without an answer whose tenant and lane hold
    /// more than their floors, while a holder below its floor waits only for a slot.
    pub(super) fn next<W>(&mut self, mut selector: Selector<'_, W>) -> Option<GrantId> {
        let capacity = &mut selector.capacity;
        if !capacity.upstream.may_lack_slots(capacity.in_flight)
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

    /// Returns `true` if the tenant and the lane hold more than their floors, without the calls
    /// already preempted.
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

/// Returns the slots that floors would use if they were released: one entry for each waiting call
/// that would go, with the replicas that may take it. A call below the floors of both its tenant
/// and its lane is one entry.
///
/// If the floors fill the limit, a floor of less than one slot goes first only every other time,
/// and is owed nothing: the calls dispatched in between would be preempted each time.
fn owed<W>(selector: &mut Selector<'_, W>) -> Vec<ReplicaSet> {
    let mut available = available_with_free_slots(selector);
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
            // If calls may lack more than slots, all that is known is that one of them could go.
            if let Some(next) = selector.first_for(holder, &mut available)
                && let Some((line, places)) = line_without_slot(selector, next.call)
                && calls.insert(line, 1).is_none()
            {
                owed.push(places);
            }
            continue;
        }
        // A line that adds no call belongs to a tenant that has been counted.
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

/// Returns what would be available beside the reservation if slots were free.
fn available_with_free_slots<W>(selector: &mut Selector<'_, W>) -> Available {
    let available = selector.capacity.available(selector.now);
    let available = selector.capacity.upstream.with_free_slots(available, None);
    let held =
        selector.reserve_for_front(&available).map(|reservation| reservation.resources).unwrap_or_default();
    let available = Available { shared: held.leave(available.shared), ..available };
    selector.capacity.upstream.with_free_slots(available, held.at)
}

/// Returns the first lines, at most `most`, whose calls count for the floor.
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

/// Returns the line of a waiting call, and the replicas where a released slot would go to it. See
/// [`Upstream::slots_for`](super::upstream::Upstream::slots_for).
fn line_without_slot<W>(
    selector: &Selector<'_, W>,
    call: WaiterId,
) -> Option<((TenantId, Lane), ReplicaSet)> {
    let waiter = selector.queue.waiters.get(call)?;
    let places = selector.capacity.upstream.slots_for(&waiter.needs, selector.capacity.in_flight)?;
    Some(((waiter.tenant, waiter.ticket.lane), places))
}

/// Returns the sum of a tenant's counts over its lines.
fn of_tenant(counts: &BTreeMap<(TenantId, Lane), usize>, id: TenantId) -> usize {
    Lane::ALL.into_iter().filter_map(|lane| counts.get(&(id, lane))).sum()
}
