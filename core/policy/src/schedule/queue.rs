//! The waiting calls: a line for each tenant and lane, the lanes, and the bounds of the queue.
//!
//! # Invariants
//!
//! - Each waiting call is in one line, and counted once in its tenant, in the load of its lane and,
//!   unless it is a retry, among the calls that may be shed.
//! - A line is ready, that is, listed in its lane, while it has calls and its tenant is neither at
//!   its cap nor out of tokens.

use std::time::{Duration, Instant};

use super::Ticket;
use super::ids::{TenantId, WaiterId};
use super::lanes::{Head, Lanes};
use super::load::Load;
use super::requirements::Requirements;
use super::settings::Settings;
use super::shedding::{QueueSpace, ShedCandidates};
use super::tenants::{Line, Tenant, Tenants};
use super::waiters::{Waiter, Waiters};
use crate::Lane;

/// The maximum position reported for a refused call. Bounds the cost of refusing a whole queue.
pub(super) const COUNTED: usize = 1000;

/// The waiting calls. See [the module](self).
#[derive(Debug)]
pub(super) struct Queue<W> {
    pub(super) tenants: Tenants,
    pub(super) lanes: Lanes,
    pub(super) waiters: Waiters<W>,
    pub(super) load: Load,
    shed_candidates: ShedCandidates,
    /// The maximum number of waiting calls, in all lanes and in each lane.
    backlog: usize,
    most: [Option<usize>; 3],
    /// How much later a call is placed in its line for each 1,000 tokens.
    short_bias: Duration,
}

impl<W> Queue<W> {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            tenants: Tenants::new(settings, now),
            lanes: Lanes::default(),
            waiters: Waiters::new(),
            load: Load::default(),
            shed_candidates: ShedCandidates::default(),
            backlog: settings.backlog,
            most: Lane::ALL.map(|lane| settings.lanes[lane as usize].queue),
            short_bias: settings.short_bias,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the tenant of that name, adding it if it is new.
    pub(super) fn tenant(&mut self, name: &std::sync::Arc<str>, now: Instant) -> TenantId {
        self.tenants.find(name, &self.lanes, now)
    }

    pub(super) fn line(&self, tenant: TenantId, lane: Lane) -> Option<&Line> {
        Some(&self.tenants.get(tenant)?.lines[lane as usize])
    }

    /// Returns `true` if a call waits for more than its tenant's cap and tokens.
    pub(super) fn has_ready_line(&self) -> bool {
        Lane::ALL.into_iter().any(|lane| self.lanes.first(lane).is_some())
    }

    /// Adds a call to its line. `open` is the time for which the target has been open so far.
    pub(super) fn enqueue(
        &mut self,
        id: TenantId,
        ticket: Ticket,
        needs: Requirements,
        open: Duration,
        who: W,
    ) -> WaiterId {
        let order = self.order_of(&ticket);
        let lane = ticket.lane;
        let fresh = ticket.charged.is_none();
        let call = self.waiters.insert(Waiter::new(who, id, ticket, needs, order, open));
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.waiting += 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.insert((order, call), needs);
            self.load.on_enqueue(lane, &needs.need, line.calls.len(), tenant.weight);
            if fresh {
                line.fresh += 1;
                self.shed_candidates.update(lane, id, tenant);
            }
        }
        self.place(id, lane);
        call
    }

    /// Removes a call, or returns `None` if it does not wait. The caller must update the line with
    /// [`Queue::place`].
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(id)?;
        if let Some(tenant) = self.tenants.get_mut(waiter.tenant) {
            let lane = waiter.ticket.lane;
            tenant.waiting -= 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.remove(&(waiter.order, id));
            self.load.on_dequeue(lane, &waiter.needs.need, line.calls.len(), tenant.weight);
            if waiter.ticket.charged.is_none() {
                line.fresh -= 1;
                self.shed_candidates.update(lane, waiter.tenant, tenant);
            }
        }
        Some(waiter)
    }

    /// Returns a call's sort key in its line: its age, plus a delay for its length if short calls
    /// are preferred.
    fn order_of(&self, ticket: &Ticket) -> Instant {
        let bias = self.short_bias.as_secs_f64() * ticket.demand.total() as f64 / 1000.0;
        let bias = Duration::try_from_secs_f64(bias).ok();
        bias.and_then(|bias| ticket.queued_at.checked_add(bias)).unwrap_or(ticket.deadline)
    }

    /// Updates a tenant's lines after a dispatch: the line of that lane, or all lines if the tenant
    /// has reached its cap.
    pub(super) fn place_after(&mut self, id: TenantId, lane: Lane) {
        let capped = self.tenants.get(id).is_some_and(Tenant::is_capped);
        self.place_some(id, lane, capped);
    }

    /// Updates a tenant's line of one lane, or all of its lines.
    pub(super) fn place_some(&mut self, id: TenantId, lane: Lane, all: bool) {
        let concerns =
            |tenant: &Tenant| tenant.waiting > 0 || tenant.lines.iter().any(|line| line.position.is_some());
        if self.tenants.get(id).is_some_and(concerns) {
            Lane::ALL.into_iter().filter(|of| all || *of == lane).for_each(|lane| self.place(id, lane));
        }
    }

    /// Updates the position of a line in its lane, or removes it from the lane if it is not ready.
    pub(super) fn place(&mut self, id: TenantId, lane: Lane) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let may_go = !tenant.is_capped();
        let line = &mut tenant.lines[lane as usize];
        let head = line.calls.first().filter(|_| may_go).and_then(|((_, call), needs)| {
            let least = line.calls.least()?;
            // The head has not changed, so that its details are known.
            if let Some(head) = line.position.map(|position| position.head).filter(|head| head.call == call) {
                return Some(Head { least, ..head });
            }
            let ticket = &self.waiters.get(call)?.ticket;
            let Ticket { queued_at: age, charged, cost, .. } = *ticket;
            Some(Head { call, needs, age, charged, cost, weight: tenant.weight, least })
        });
        self.lanes.place(lane, id, line, head);
    }

    /// Removes a line from its lane until its tenant has tokens again.
    pub(super) fn park(&mut self, now: Instant, id: TenantId, lane: Lane, until: Instant) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.out_of_tokens.set(now, true);
            self.lanes.park(lane, id, &mut tenant.lines[lane as usize], until);
        }
    }

    /// Restores the parked lines whose tenants have tokens again.
    pub(super) fn unpark(&mut self, now: Instant) {
        while let Some((lane, id)) = self.lanes.due(now) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.out_of_tokens.set(now, false);
            }
            self.place(id, lane);
        }
    }

    /// Recomputes the requirements of the calls for which `reclassify` returns `true`.
    pub(super) fn update_requirements(
        &mut self,
        mut reclassify: impl FnMut(&Ticket, &mut Requirements) -> bool,
    ) {
        let mut moved = Vec::new();
        for (call, waiter) in self.waiters.iter_mut() {
            if reclassify(&waiter.ticket, &mut waiter.needs) {
                moved.push((waiter.tenant, waiter.ticket.lane, (waiter.order, call), waiter.needs));
            }
        }
        for (tenant, lane, place, needs) in &moved {
            let Some(tenant) = self.tenants.get_mut(*tenant) else { continue };
            let line = &mut tenant.lines[*lane as usize];
            line.calls.set(place, *needs);
            if let Some(position) = line.position.as_mut().filter(|position| position.head.call == place.1) {
                position.head.needs = *needs;
            }
        }
        moved.dedup_by_key(|(tenant, lane, ..)| (*tenant, *lane));
        moved.into_iter().for_each(|(tenant, lane, ..)| self.place(tenant, lane));
    }

    /// Clears the debts of each lane without waiting calls and calls in flight.
    pub(super) fn end_busy_periods(&mut self, in_flight: [usize; 3]) {
        for lane in Lane::ALL {
            if in_flight[lane as usize] == 0 && self.load.waiting(lane) == 0 {
                self.lanes.time_mut(lane).end_busy_period();
            }
        }
    }

    /// Returns the number of calls before a call in its line, or [`COUNTED`] if the call does not
    /// wait.
    pub(super) fn position(&self, call: WaiterId) -> usize {
        let position = || {
            let waiter = self.waiters.get(call)?;
            let line = self.line(waiter.tenant, waiter.ticket.lane)?;
            Some(line.calls.rank(&(waiter.order, call)))
        };
        position().unwrap_or(COUNTED)
    }

    /// Returns whether a new call of the tenant may wait in the lane.
    pub(super) fn space(&mut self, id: TenantId, lane: Lane) -> QueueSpace {
        let Some(tenant) = self.tenants.get(id) else { return QueueSpace::Full };
        if self.most[lane as usize].is_some_and(|most| self.load.waiting(lane) >= most) {
            // Only calls of lower lanes are shed, and a lane's own bound counts none of them.
            return QueueSpace::Full;
        }
        let of_tenant = tenant.waiting >= tenant.queue;
        if !of_tenant && self.waiters.len() < self.backlog {
            return QueueSpace::Free;
        }
        let mut lower = Lane::ALL.into_iter().rev().take_while(|below| *below > lane);
        let victim = lower.find_map(|below| {
            let of = if of_tenant { id } else { self.shed_candidates.longest(below)? };
            self.youngest(of, below)
        });
        victim.map_or(QueueSpace::Full, QueueSpace::Replacing)
    }

    /// Returns the last call of a line that may be shed.
    fn youngest(&self, id: TenantId, lane: Lane) -> Option<WaiterId> {
        let tenant = self.tenants.get(id)?;
        let line = &tenant.lines[lane as usize];
        if !tenant.shed || line.fresh == 0 {
            return None;
        }
        let calls = (0..line.calls.len()).rev().filter_map(|at| Some(line.calls.nth(at)?.1));
        calls
            .into_iter()
            .find(|call| self.waiters.get(*call).is_some_and(|waiter| waiter.ticket.charged.is_none()))
    }
}
