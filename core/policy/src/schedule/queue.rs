//! The waiting calls of a scheduler, grouped into lines (one for each tenant and lane), and the
//! maximum numbers of waiting calls.
//!
//! # Shedding
//!
//! The number of waiting calls is limited for each tenant, for each lane, and in total. If a new
//! call finds the limit of its tenant or the total reached, the youngest call of the lowest lane
//! below its own is shed, that is, removed and refused: a call of the same tenant if the tenant's
//! limit is reached, otherwise a call of the tenant with the most waiting calls in that lane.
//! Retries, and tenants with `shed = false`, are exempt.
//!
//! # Invariants
//!
//! - Each waiting call is in one line. It is counted once in its tenant, in the load of its lane
//!   and, unless it is a retry, among the calls that may be shed.
//! - A line is *ready*, that is, listed in its lane, if it has calls and its tenant is neither at
//!   its slot cap nor out of tokens.
//! - A line is *parked* only if it has calls.

use std::time::{Duration, Instant};

use super::{
    Head, Lanes, LazyOrder, Line, Requirements, SchedulerSettings, Tenant, TenantId, TenantShares, Tenants,
    Ticket, Waiter, WaiterId, Waiters, from_parts, parts,
};
use crate::{Lane, budget::Need};

/// The maximum number of calls ahead that is reported for a refused call. Limits the cost of
/// refusing all waiting calls at once.
pub(super) const MAX_POSITION: usize = 1000;

/// All waiting calls of a scheduler, grouped into a [`Line`] for each tenant and lane. See [the
/// module](self).
#[derive(Debug)]
pub(super) struct Queue<W> {
    pub(super) tenants: Tenants,
    pub(super) lanes: Lanes,
    pub(super) waiters: Waiters<W>,
    pub(super) load: Load,
    pub(super) shares: TenantShares,
    /// For each lane, the tenants whose waiting calls may be shed, ordered by the number of these
    /// calls. Retries are not counted.
    shed_candidates: [LazyOrder<usize>; 3],
    /// The maximum number of waiting calls of all tenants together.
    backlog: usize,
    /// The maximum number of waiting calls in each lane, or `None` if the lane has no maximum of
    /// its own.
    max_waiting: [Option<usize>; 3],
    /// How much later a call is placed among the waiting calls of its tenant and lane for each
    /// 1,000 tokens of input and expected output. Zero: short calls are not preferred.
    short_bias: Duration,
}

impl<W> Queue<W> {
    pub(super) fn new(settings: &SchedulerSettings, now: Instant) -> Self {
        Self {
            tenants: Tenants::new(settings, now),
            lanes: Lanes::default(),
            waiters: Waiters::new(),
            load: Load::default(),
            shares: TenantShares::new(now),
            shed_candidates: Default::default(),
            backlog: settings.backlog,
            max_waiting: Lane::ALL.map(|lane| settings.lanes[lane as usize].queue),
            short_bias: settings.short_bias,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the ID of the tenant with this name. Adds the tenant if it is not in the table.
    pub(super) fn tenant(&mut self, name: &std::sync::Arc<str>, now: Instant) -> TenantId {
        self.tenants.find(name, &self.lanes, now)
    }

    /// Returns the waiting calls of a tenant in one lane, or `None` if the tenant is not in the
    /// table.
    pub(super) fn line(&self, tenant: TenantId, lane: Lane) -> Option<&Line> {
        Some(&self.tenants.get(tenant)?.lines[lane as usize])
    }

    /// Adds a call to the line of its tenant and lane, and returns its ID. `clock` is the time on
    /// the clock of wait budgets ([`Scheduler::wait_clock`](super::Scheduler::wait_clock)), from
    /// which the end of the call's wait budget is computed.
    pub(super) fn enqueue(
        &mut self,
        id: TenantId,
        ticket: Ticket,
        needs: Requirements,
        clock: Duration,
        who: W,
    ) -> WaiterId {
        let order = self.order_of(&ticket);
        let lane = ticket.lane;
        let is_fresh = ticket.queue_tag.is_none();
        let budget_ends = ticket.wait.map(|wait| clock.saturating_add(wait));
        let waiter = Waiter { who, tenant: id, ticket, needs, order, since: clock, budget_ends };
        let call = self.waiters.insert(waiter);
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.waiting += 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.insert((order, call), needs);
            self.load.on_enqueue(lane, &needs.need, line.calls.len(), tenant.weight);
            line.fresh += usize::from(is_fresh);
        }
        if is_fresh {
            self.update_shed_candidate(id, lane);
        }
        self.place_after(id, lane);
        call
    }

    /// Removes a call. Returns `None` if the call is not waiting.
    ///
    /// Does not update the position of the call's [`Line`] among the ready lines of its lane: the
    /// caller must call [`Queue::place`] afterwards.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(id)?;
        if let Some(tenant) = self.tenants.get_mut(waiter.tenant) {
            let lane = waiter.ticket.lane;
            tenant.waiting -= 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.remove(&(waiter.order, id));
            self.load.on_dequeue(lane, &waiter.needs.need, line.calls.len(), tenant.weight);
            if waiter.ticket.queue_tag.is_none() {
                line.fresh -= 1;
                self.update_shed_candidate(waiter.tenant, lane);
            }
        }
        Some(waiter)
    }

    /// Returns the time by which a call is ordered among the waiting calls of its tenant and lane:
    /// when it was queued, plus [`Queue::short_bias`] for its tokens.
    fn order_of(&self, ticket: &Ticket) -> Instant {
        let bias = self.short_bias.as_secs_f64() * ticket.demand.total() as f64 / 1000.0;
        let bias = Duration::try_from_secs_f64(bias).ok();
        bias.and_then(|bias| ticket.queued_at.checked_add(bias)).unwrap_or(ticket.deadline)
    }

    /// Updates the position of a tenant's [`Line`] among the ready lines of `lane`, after a call of
    /// the line was queued, dispatched or withdrawn. Updates the tenant's lines in all lanes if
    /// none of them is ready any more, because the tenant has reached its slot cap, or if some may
    /// be ready again, because the tenant's own tokens were kept for the first call of this line.
    pub(super) fn place_after(&mut self, id: TenantId, lane: Lane) {
        let concerns_all = |tenant: &Tenant| tenant.is_barred() || tenant.tokens.is_some();
        let all = self.tenants.get(id).is_some_and(concerns_all);
        self.place_some(id, lane, all);
    }

    /// Updates the position of a tenant's [`Line`] among the ready lines of `lane`. If `all` is
    /// `true`, does the same in all lanes. Does nothing if the tenant has no waiting call and no
    /// ready or parked line.
    pub(super) fn place_some(&mut self, id: TenantId, lane: Lane, all: bool) {
        let is_listed = |line: &Line| line.position.is_some() || line.parked.is_some();
        let concerns = |tenant: &Tenant| tenant.waiting > 0 || tenant.lines.iter().any(is_listed);
        if self.tenants.get(id).is_some_and(concerns) {
            Lane::ALL.into_iter().filter(|of| all || *of == lane).for_each(|lane| self.place(id, lane));
        }
    }

    /// Updates the position of a tenant's line among the ready lines of its lane. Removes the line
    /// from them if it has no calls or its tenant is at its slot cap.
    pub(super) fn place(&mut self, id: TenantId, lane: Lane) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let may_go = !tenant.is_barred();
        let below_cap = tenant.cap.saturating_sub(tenant.in_flight);
        let line = &mut tenant.lines[lane as usize];
        let calls = line.calls.len().min(below_cap);
        let head = line.calls.first().filter(|_| may_go).and_then(|((_, call), needs)| {
            let least = line.calls.least()?;
            // If the head has not changed, its details are still known.
            if let Some(head) = line.position.map(|position| position.head).filter(|head| head.call == call) {
                return Some(Head { least, calls, ..head });
            }
            let ticket = &self.waiters.get(call)?.ticket;
            let Ticket { queued_at: age, queue_tag, cost, .. } = *ticket;
            Some(Head { call, needs, age, queue_tag, cost, weight: tenant.weight, least, calls })
        });
        self.lanes.place(lane, id, line, head);
    }

    /// Removes a tenant's [`Line`] from the ready lines of its lane until `until`, when the tenant
    /// has enough tokens of its own again. Such a line is *parked*.
    pub(super) fn park(&mut self, now: Instant, id: TenantId, lane: Lane, until: Instant) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.out_of_tokens.set(now, true);
            self.lanes.park(lane, id, &mut tenant.lines[lane as usize], until);
        }
    }

    /// Makes each [parked](Queue::park) line ready again if its tenant has enough tokens of its own
    /// by `now`.
    pub(super) fn unpark(&mut self, now: Instant) {
        while let Some((lane, id)) = self.lanes.pop_due(now) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.out_of_tokens.set(now, false);
            }
            self.place(id, lane);
        }
    }

    /// Calls `reclassify` for each waiting call. `reclassify` may change the requirements, and
    /// returns `true` if it did; these calls are then placed by their new requirements.
    pub(super) fn update_requirements(
        &mut self,
        mut reclassify: impl FnMut(&Ticket, &mut Requirements) -> bool,
    ) {
        let mut moved = Vec::new();
        for (call, waiter) in self.waiters.iter_mut() {
            let before = waiter.needs.need;
            if reclassify(&waiter.ticket, &mut waiter.needs) {
                self.load.on_changed_need(waiter.ticket.lane, &before, &waiter.needs.need);
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

    /// Forgives the debts in fair queueing of each lane that has neither waiting calls nor calls in
    /// flight. `in_flight` is the number of calls in flight by lane.
    pub(super) fn end_busy_periods(&mut self, in_flight: [usize; 3]) {
        for lane in Lane::ALL {
            if in_flight[lane as usize] == 0 && self.load.waiting(lane) == 0 {
                self.lanes.lane_mut(lane).time.end_busy_period();
            }
        }
    }

    /// Returns the number of calls of the same tenant and lane that are ahead of a call, or
    /// [`MAX_POSITION`] if the call is not waiting.
    pub(super) fn position(&self, call: WaiterId) -> usize {
        let position = || {
            let waiter = self.waiters.get(call)?;
            let line = self.line(waiter.tenant, waiter.ticket.lane)?;
            Some(line.calls.rank(&(waiter.order, call)))
        };
        position().unwrap_or(MAX_POSITION)
    }

    /// Returns whether a new call of the tenant may be queued in the lane, and which waiting call
    /// must be shed first.
    pub(super) fn space(&mut self, id: TenantId, lane: Lane) -> QueueSpace {
        let Some(tenant) = self.tenants.get(id) else { return QueueSpace::Full };
        if self.max_waiting[lane as usize].is_some_and(|max| self.load.waiting(lane) >= max) {
            // Only calls of lower lanes are shed, and a lane's own bound counts none of them.
            return QueueSpace::Full;
        }
        let of_tenant = tenant.waiting >= tenant.queue;
        if !of_tenant && self.waiters.len() < self.backlog {
            return QueueSpace::Free;
        }
        let mut lower = Lane::ALL.into_iter().rev().take_while(|below| *below > lane);
        let victim = lower.find_map(|below| {
            let of = if of_tenant { id } else { self.shed_candidates[below as usize].order().last()?.1 };
            self.youngest(of, below)
        });
        victim.map_or(QueueSpace::Full, QueueSpace::Replacing)
    }

    /// Updates in `shed_candidates` how many waiting calls of the tenant in the lane may be shed.
    /// Does nothing if the tenant is exempt from shedding.
    fn update_shed_candidate(&mut self, id: TenantId, lane: Lane) {
        if let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.shed) {
            let fresh = tenant.lines[lane as usize].fresh;
            self.shed_candidates[lane as usize].set(id, (fresh > 0).then_some(fresh));
        }
    }

    /// Returns the last waiting call of the tenant in the lane, not counting retries. Returns
    /// `None` if there is none, or if the tenant is exempt from shedding.
    fn youngest(&self, id: TenantId, lane: Lane) -> Option<WaiterId> {
        let tenant = self.tenants.get(id)?;
        let line = &tenant.lines[lane as usize];
        if !tenant.shed || line.fresh == 0 {
            return None;
        }
        let mut calls = (0..line.calls.len()).rev().filter_map(|at| Some(line.calls.nth(at)?.1));
        calls.find(|call| self.waiters.get(*call).is_some_and(|waiter| waiter.ticket.queue_tag.is_none()))
    }
}

/// Whether one more call may be queued.
pub(super) enum QueueSpace {
    /// The call may be queued.
    Free,
    /// The call may be queued if this waiting call is shed.
    Replacing(WaiterId),
    /// The call may not be queued.
    Full,
}

/// The number of waiting calls in one lane, the sum of the weights of their tenants, and the sum of
/// their needs.
#[derive(Debug, Default)]
struct LaneLoad {
    waiting: usize,
    /// The sum of the weights of all tenants that have waiting calls in the lane.
    weight: f64,
    /// The sum of the needs of all waiting calls in tokens, in the order of [`parts`].
    need: [u64; 4],
}

/// The number of waiting calls in each lane, and the sums of their weights and needs. Waits are
/// predicted from them.
#[derive(Debug, Default)]
pub(super) struct Load([LaneLoad; 3]);

impl Load {
    /// Adds a call to the load of its lane. `of_line` is the number of waiting calls of its tenant
    /// in the lane, including this one. `weight` is the weight of its tenant.
    pub(super) fn on_enqueue(&mut self, lane: Lane, need: &Need, of_line: usize, weight: f64) {
        let load = &mut self.0[lane as usize];
        load.waiting += 1;
        if of_line == 1 {
            load.weight += weight;
        }
        load.need.iter_mut().zip(parts(need)).for_each(|(sum, part)| *sum += u64::from(part));
    }

    /// Removes a call from the load of its lane. `of_line` is the number of waiting calls of its
    /// tenant that are left in the lane. `weight` is the weight of its tenant.
    pub(super) fn on_dequeue(&mut self, lane: Lane, need: &Need, of_line: usize, weight: f64) {
        let load = &mut self.0[lane as usize];
        load.waiting -= 1;
        if of_line == 0 {
            // Avoids accumulating rounding errors.
            load.weight = if load.waiting == 0 { 0.0 } else { load.weight - weight };
        }
        load.need.iter_mut().zip(parts(need)).for_each(|(sum, part)| *sum -= u64::from(part));
    }

    /// Replaces the need of a waiting call.
    fn on_changed_need(&mut self, lane: Lane, before: &Need, now: &Need) {
        let sums = self.0[lane as usize].need.iter_mut().zip(parts(before).into_iter().zip(parts(now)));
        sums.for_each(|(sum, (before, now))| *sum = *sum - u64::from(before) + u64::from(now));
    }

    /// Returns the sum of the weights of the tenants that have waiting calls. A tenant with waiting
    /// calls in several lanes counts for each of them.
    pub(super) fn weight(&self) -> f64 {
        self.0.iter().map(|load| load.weight).sum()
    }

    pub(super) fn waiting(&self, lane: Lane) -> usize {
        self.0[lane as usize].waiting
    }

    /// Returns the mean need, in tokens, of the waiting calls of a lane and all higher lanes.
    /// Returns zeros if there are none.
    pub(super) fn mean(&self, lane: Lane) -> Need {
        let lanes = || self.0.iter().take(lane as usize + 1);
        let calls = lanes().map(|load| load.waiting as u64).sum::<u64>().max(1);
        from_parts(std::array::from_fn(|part| {
            let sum: u64 = lanes().map(|load| load.need[part]).sum();
            u32::try_from(sum / calls).unwrap_or(u32::MAX)
        }))
    }
}
