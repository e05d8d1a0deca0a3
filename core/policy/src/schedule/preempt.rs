//! Preemption: if a tenant or lane with a floor waits for slots that other calls have borrowed, the
//! driver cancels a borrower's call that has no response head yet, and queues it again without a
//! new charge.
//!
//! At most as many calls are preempted as floors could use slots (see [`owed`]), so that no call is
//! cancelled in vain.

use std::collections::BTreeMap;
use std::iter::successors;

use super::{
    Available, GrantId, HeadReservation, Holder, LineKey, Selector, TenantId, UnderFloor, floor_slots,
};
use crate::{Lane, placement::ReplicaSet};

/// The calls in flight that may be preempted, and those that were preempted but not yet released.
/// Each is listed with its tenant and lane.
#[derive(Debug, Default)]
pub(super) struct Borrowed {
    /// The calls that have no response head yet.
    pub(super) unanswered: BTreeMap<GrantId, (TenantId, Lane)>,
    /// The calls that were returned by [`Borrowed::next`] and have not been released.
    preempted: BTreeMap<GrantId, (TenantId, Lane)>,
}

impl Borrowed {
    /// Removes a call that has a response head or was released.
    pub(super) fn remove(&mut self, id: GrantId) {
        self.unanswered.remove(&id);
        self.preempted.remove(&id);
    }

    /// Returns the call to preempt now, and lists it as preempted. This is the most recently
    /// admitted call without a response head whose tenant and lane both hold more slots than are
    /// reserved for them (their floors), and whose slot a waiting call of a tenant or lane below
    /// its floor would use.
    ///
    /// Returns `None` if there is no such call, if enough calls are preempted already, or if the
    /// upstream admits no call now.
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

    /// Returns `true` if the tenant and the lane both hold more slots than their floors, not
    /// counting calls already preempted.
    fn borrows<W>(&self, selector: &Selector<'_, W>, tenant: TenantId, lane: Lane) -> bool {
        let limit = selector.capacity.limits.slots;
        let more_than = |floor: f64, held: usize, is_of: &dyn Fn(&(TenantId, Lane)) -> bool| {
            let more = held.saturating_sub(floor_slots(floor, limit));
            more > 0 && self.preempted.values().filter(|line| is_of(line)).take(more).count() < more
        };
        let floor = selector.order.floors.share_of(lane);
        more_than(floor, selector.capacity.by_lane[lane as usize], &|line| line.1 == lane)
            && selector
                .queue
                .tenants
                .get(tenant)
                .is_some_and(|of| more_than(of.floor, of.in_flight, &|line| line.0 == tenant))
    }
}

/// Returns one entry for each waiting call that a floor would dispatch if a slot was released: the
/// replicas where the call could run, or the empty set for a single server. A call for which both
/// its tenant and its lane are below their floors is one entry. If calls may lack more than slots,
/// there is at most one entry per floor, because it is not known whether further calls would fit.
///
/// If the floors add up to all slots, a floor of less than one slot is served only every other
/// time, and gets no entry: the calls dispatched in between would be preempted each time.
fn owed<W>(selector: &mut Selector<'_, W>) -> Vec<ReplicaSet> {
    let mut available = available_with_free_slots(selector);
    let mut calls = BTreeMap::<(TenantId, Lane), usize>::new();
    let mut owed = Vec::new();
    let in_flight = selector.capacity.in_flight;
    let is_filled = selector.order.floors.fill_limit(selector.capacity.limits.slots);
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
            if let Some(next) = selector.first_fit_for(holder, &mut available)
                && let Some(waiter) = selector.queue.waiters.get(next.call)
                && let Some(places) = selector.capacity.upstream.slots_for(&waiter.needs, in_flight)
                && calls.insert((waiter.tenant, waiter.ticket.lane), 1).is_none()
            {
                owed.push(places);
            }
            continue;
        }
        // A line that adds no call belongs to a tenant whose calls were counted before.
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

/// Returns what would be available to calls, apart from the reserved resources, if each eligible
/// replica had a free slot.
fn available_with_free_slots<W>(selector: &mut Selector<'_, W>) -> Available {
    let mut available = selector.capacity.available(selector.now);
    available.replicas = selector.capacity.upstream.replicas(None, None);
    if let Some(HeadReservation { resources: held, .. }) = selector.reserve_for_front(&available) {
        available.shared = held.remaining(available.shared);
        available.replicas = selector.capacity.upstream.replicas(None, held.at);
    }
    available
}

/// Returns lines (each the waiting calls of one tenant in one lane) whose calls count for the floor
/// of `holder`, in dispatch order. If the holder is a tenant, these are its lines in all lanes with
/// waiting calls; if it is a lane, the first `most` lines of the lane.
fn lines_of<W>(selector: &mut Selector<'_, W>, holder: Holder, most: usize) -> Vec<(TenantId, Lane)> {
    match holder {
        Holder::Tenant(tenant) => selector.turns().map(|turn| (tenant, turn.lane)).collect(),
        Holder::Lane(lane) => {
            let ready = selector.queue.lanes.lane(lane);
            let next = |after: Option<&LineKey>| ready.next_fit(after, &Available::UNBOUNDED);
            let keys = successors(next(None), |key| next(Some(key)));
            keys.take(most).map(|key| (key.tenant, lane)).collect()
        }
    }
}

/// Returns the sum of the counts of a tenant over its lanes.
fn of_tenant(counts: &BTreeMap<(TenantId, Lane), usize>, id: TenantId) -> usize {
    Lane::ALL.into_iter().filter_map(|lane| counts.get(&(id, lane))).sum()
}
