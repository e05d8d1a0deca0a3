//! The calls that wait: a line for each tenant and lane, the lanes in which lines stand, and the
//! bounds of all of them.
//!
//! Invariants: each call that waits is in one line, and counted once in its tenant, its lane's load
//! and the lines that may be shed from. A line stands in its lane while it has calls and its tenant
//! is neither at its cap nor without tokens of its own.

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
use crate::context::Lane;

/// How far a refused call's position is counted. A queue may be a million long, and may be refused whole.
pub(super) const COUNTED: usize = 1000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Queue<W> {
    pub(super) tenants: Tenants,
    pub(super) lanes: Lanes,
    pub(super) waiters: Waiters<W>,
    pub(super) load: Load,
    shed_candidates: ShedCandidates,
    /// The most calls that may wait: of all lanes together, and of each lane.
    backlog: usize,
    most: [Option<usize>; 3],
    /// By how much later a call of a thousand tokens stands in its line.
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

    /// Returns the tenant of that name, which is added if it is new.
    pub(super) fn tenant(&mut self, name: &std::sync::Arc<str>, now: Instant) -> TenantId {
        self.tenants.find(name, &self.lanes, now)
    }

    pub(super) fn line(&self, tenant: TenantId, lane: Lane) -> Option<&Line> {
        Some(&self.tenants.get(tenant)?.lines[lane as usize])
    }

    /// Returns `true` if a line stands: a call waits for more than its tenant's cap and tokens.
    pub(super) fn has_ready_line(&self) -> bool {
        Lane::ALL.into_iter().any(|lane| self.lanes.first(lane).is_some())
    }

    /// Appends a call to its line. `open`: see [`Waiter::new`].
    pub(super) fn enqueue(
        &mut self,
        id: TenantId,
        ticket: Ticket,
        requirements: Requirements,
        open: Duration,
        who: W,
    ) -> WaiterId {
        let order = self.order_of(&ticket);
        let lane = ticket.lane;
        let fresh = ticket.charged.is_none();
        let call = self.waiters.insert(Waiter::new(who, id, ticket, requirements, order, open));
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.waiting += 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.insert((order, call), requirements);
            self.load.on_enqueue(lane, &requirements.need, line.calls.len(), tenant.weight);
            if fresh {
                line.fresh += 1;
                self.shed_candidates.update(lane, id, tenant);
            }
        }
        self.place(id, lane);
        call
    }

    /// Takes a call out. The caller has to place its line anew. `None`: the call does not wait.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(id)?;
        if let Some(tenant) = self.tenants.get_mut(waiter.tenant) {
            let lane = waiter.ticket.lane;
            tenant.waiting -= 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.remove(&(waiter.order, id));
            self.load.on_dequeue(lane, &waiter.requirements.need, line.calls.len(), tenant.weight);
            if waiter.ticket.charged.is_none() {
                line.fresh -= 1;
                self.shed_candidates.update(lane, waiter.tenant, tenant);
            }
        }
        Some(waiter)
    }

    /// Returns where a call stands in its line: by its age, and by its length if short calls are preferred.
    fn order_of(&self, ticket: &Ticket) -> Instant {
        let bias = self.short_bias.as_secs_f64() * ticket.demand.total() as f64 / 1000.0;
        let bias = Duration::try_from_secs_f64(bias).ok();
        bias.and_then(|bias| ticket.queued_at.checked_add(bias)).unwrap_or(ticket.deadline)
    }

    /// ReplicaSet the lines of a tenant anew of which a call was dispatched: that of the lane, or all if the
    /// tenant has reached its cap.
    pub(super) fn place_after(&mut self, id: TenantId, lane: Lane) {
        let capped = self.tenants.get(id).is_some_and(Tenant::is_capped);
        self.place_some(id, lane, capped);
    }

    /// ReplicaSet a tenant's line of one lane anew, or all of its lines.
    pub(super) fn place_some(&mut self, id: TenantId, lane: Lane, all: bool) {
        let concerns =
            |tenant: &Tenant| tenant.waiting > 0 || tenant.lines.iter().any(|line| line.position.is_some());
        if self.tenants.get(id).is_some_and(concerns) {
            Lane::ALL.into_iter().filter(|of| all || *of == lane).for_each(|lane| self.place(id, lane));
        }
    }

    /// Lets a tenant's line of one lane stand where it belongs, or takes it out of the lane.
    pub(super) fn place(&mut self, id: TenantId, lane: Lane) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let may_go = !tenant.is_capped();
        let line = &mut tenant.lines[lane as usize];
        let head = line.calls.first().filter(|_| may_go).and_then(|((_, call), requirements)| {
            let least = line.calls.least()?;
            // Of the head that stands already all is known.
            if let Some(head) = line.position.map(|position| position.head).filter(|head| head.call == call) {
                return Some(Head { least, ..head });
            }
            let ticket = &self.waiters.get(call)?.ticket;
            let Ticket { queued_at: age, charged, cost, .. } = *ticket;
            Some(Head { call, requirements, age, charged, cost, weight: tenant.weight, least })
        });
        self.lanes.place(lane, id, line, head);
    }

    /// Takes a line out of its lane until its tenant has tokens of its own again.
    pub(super) fn park(&mut self, now: Instant, id: TenantId, lane: Lane, until: Instant) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.out_of_tokens.set(now, true);
            self.lanes.park(lane, id, &mut tenant.lines[lane as usize], until);
        }
    }

    /// Lets the lines stand again whose tenants have tokens of their own again.
    pub(super) fn unpark(&mut self, now: Instant) {
        while let Some((lane, id)) = self.lanes.due(now) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.out_of_tokens.set(now, false);
            }
            self.place(id, lane);
        }
    }

    /// Computes anew what each call takes that `reclassify` changes.
    pub(super) fn update_claims(&mut self, mut reclassify: impl FnMut(&Ticket, &mut Requirements) -> bool) {
        let mut moved = Vec::new();
        for (call, waiter) in self.waiters.iter_mut() {
            if reclassify(&waiter.ticket, &mut waiter.requirements) {
                moved.push((waiter.tenant, waiter.ticket.lane, (waiter.order, call), waiter.requirements));
            }
        }
        for (tenant, lane, place, requirements) in &moved {
            let Some(tenant) = self.tenants.get_mut(*tenant) else { continue };
            let line = &mut tenant.lines[*lane as usize];
            line.calls.set(place, *requirements);
            if let Some(position) = line.position.as_mut().filter(|position| position.head.call == place.1) {
                position.head.requirements = *requirements;
            }
        }
        moved.dedup_by_key(|(tenant, lane, ..)| (*tenant, *lane));
        moved.into_iter().for_each(|(tenant, lane, ..)| self.place(tenant, lane));
    }

    /// Forgives the debts of each lane of which no call waits or runs.
    pub(super) fn end_busy_periods(&mut self, in_flight: [usize; 3]) {
        for lane in Lane::ALL {
            if in_flight[lane as usize] == 0 && self.load.waiting(lane) == 0 {
                self.lanes.time_mut(lane).end_busy_period();
            }
        }
    }

    /// Returns how many calls of its line stand before a call, and [`COUNTED`] if it does not wait.
    pub(super) fn position(&self, call: WaiterId) -> usize {
        let position = || {
            let waiter = self.waiters.get(call)?;
            let line = self.line(waiter.tenant, waiter.ticket.lane)?;
            Some(line.calls.rank(&(waiter.order, call)))
        };
        position().unwrap_or(COUNTED)
    }

    /// Returns whether a new call of that tenant may wait in that lane.
    pub(super) fn space(&mut self, id: TenantId, lane: Lane) -> QueueSpace {
        let Some(tenant) = self.tenants.get(id) else { return QueueSpace::Full };
        if self.most[lane as usize].is_some_and(|most| self.load.waiting(lane) >= most) {
            // In its own lane nobody is below it.
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
