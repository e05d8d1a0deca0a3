//! The coordinator of the scheduler's parts. See [the parent module](super).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::budgets::Resources;
use super::capacity::Capacity;
use super::fit_set::earlier;
use super::floors::Floors;
use super::lanes::Turn;
use super::pace::Gap;
use super::predict::Predictor;
use super::preempt::Borrowed;
use super::queue::{COUNTED, Queue};
use super::select::{DispatchBasis, Order, Selector};
use super::settings::Settings;
use super::shedding::QueueSpace;
use super::ticket::{ForcedDecision, Refusal, Ticket};
use super::upstream::LimitChange;
use super::waiters::Waiter;
use super::{Grant, GrantId, Rule, WaiterId};
use crate::Reason;

/// The admission scheduler of one target or tool. See [the module](super).
#[derive(Debug)]
pub struct Scheduler<W> {
    /// The settings without the tenants, which the queue keeps.
    pub(super) settings: Settings,
    pub(super) queue: Queue<W>,
    pub(super) capacity: Capacity,
    pub(super) order: Order,
    /// The calls that may be preempted for a floor, if preemption is configured.
    pub(super) borrowed: Option<Borrowed>,
    pub(super) predictor: Predictor,
    pub(super) gap: Gap,
    /// Shed calls that have not been returned by [`Scheduler::expired`] yet.
    displaced: Vec<(W, Refusal)>,
    pub(super) began: Instant,
    pub(super) draining: bool,
}

impl<W> Scheduler<W> {
    /// Creates a scheduler that limits slots only.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self::over(settings, None, now)
    }

    /// Creates a scheduler that also limits rate budgets and, if its size is known, the engine's
    /// memory.
    pub fn with(settings: &Settings, resources: Resources, now: Instant) -> Self {
        Self::over(settings, Some(resources), now)
    }

    fn over(settings: &Settings, resources: Option<Resources>, now: Instant) -> Self {
        let queue = Queue::new(settings, now);
        let floors = Floors::new(&settings.lanes, &queue.tenants);
        Self {
            queue,
            capacity: Capacity::new(settings, resources, now),
            order: Order { floors, reservation: None, aging: settings.aging },
            borrowed: settings.reclaim.then(Borrowed::default),
            predictor: Predictor::new(settings),
            gap: Gap::default(),
            displaced: Vec::new(),
            began: now,
            draining: false,
            settings: Settings { tenants: BTreeMap::new(), ..settings.clone() },
        }
    }

    /// Queues a call for which [`Scheduler::try_admit`] returned `Ok(None)`.
    ///
    /// If the queue is full, a less urgent call is shed. The next [`Scheduler::expired`] returns
    /// it.
    pub fn enqueue(&mut self, now: Instant, ticket: Ticket, who: W) -> WaiterId {
        let id = self.queue.tenant(&ticket.tenant, now);
        if ticket.charged.is_none()
            && let QueueSpace::Replacing(victim) = self.queue.space(id, ticket.lane)
        {
            self.displace(now, victim);
        }
        let needs = self.capacity.needs(&ticket);
        self.capacity.upstream.on_enqueue(needs.class);
        let open = self.open(now);
        let call = self.queue.enqueue(id, ticket, needs, open, who);
        self.watch(now);
        call
    }

    /// Removes a call from the queue as shed.
    fn displace(&mut self, now: Instant, call: WaiterId) {
        let position = self.queue.position(call).min(COUNTED);
        let why = self.explain(now, call);
        let Some(waiter) = self.dequeue(call) else { return };
        let retry_after = Some(self.predictor.retry_after(&self.capacity, self.queue.len()));
        let refusal = Refusal { reason: Reason::Shed, position, retry_after, why, most: None };
        self.displaced.push((waiter.who, refusal));
    }

    /// Admits a call regardless of the rules, and returns what the rules would have decided
    /// (observe mode).
    pub fn force(&mut self, now: Instant, ticket: &Ticket) -> (Grant, Result<ForcedDecision, Refusal>) {
        let verdict = match self.try_admit(now, ticket) {
            Ok(Some(grant)) => return (grant, Ok(ForcedDecision::Admitted)),
            Ok(None) => Ok(ForcedDecision::WouldWait),
            Err(refusal) => Err(refusal),
        };
        let id = self.queue.tenant(&ticket.tenant, now);
        let class = self.capacity.upstream.class(ticket);
        self.capacity.upstream.measure_memory();
        let grant = self.grant(now, id, ticket, class, None, false);
        // The tenant may have reached its cap while other calls of it wait.
        self.queue.place_after(id, ticket.lane);
        (grant, verdict)
    }

    /// Dispatches the next waiting call that may go now. Call until `None` after each event.
    pub fn next(&mut self, now: Instant) -> Option<(W, Grant)> {
        self.tick(now);
        let mut selector = self.selector(now);
        let Some(pick) = selector.pick() else {
            self.gap.stop(now);
            return None;
        };
        let lane = selector.queue.waiters.get(pick.next.call)?.ticket.lane;
        let debtor = selector.debtor(lane);
        let slots = self.capacity.slot_use();
        let waiter = self.remove(pick.next.call)?;
        let (floor, is_early) = match pick.basis {
            DispatchBasis::Floor(holder) => (Some(holder), false),
            DispatchBasis::Turn(turn) => (None, turn.is_early),
        };
        let out_of_turn = debtor == Some(waiter.tenant) || floor.is_some();
        let class = waiter.needs.class;
        let mut grant = self.grant(now, waiter.tenant, &waiter.ticket, class, pick.next.kept, out_of_turn);
        grant.spent = self.open(now).saturating_sub(waiter.since);
        self.order.floors.on_dispatch(floor, self.capacity.grants);
        self.queue.lanes.on_dispatch(now, Turn { lane, is_early }, grant.id(), waiter.ticket.cost, &slots);
        self.queue.place_after(waiter.tenant, lane);
        Some((waiter.who, grant))
    }

    /// Removes a call whose caller has gone away. Returns `false` if the call had left the queue
    /// already.
    pub fn withdraw(&mut self, id: WaiterId) -> bool {
        self.dequeue(id).is_some()
    }

    /// Removes and returns the calls that leave the queue without a slot: expired and shed calls.
    ///
    /// Each position is counted before any of these calls left the queue.
    pub fn expired(&mut self, now: Instant) -> Vec<(W, Refusal)> {
        self.tick(now);
        // A hanging probe may have reopened the target by now, which lets wait budgets run again.
        let _ = self.capacity.upstream.ready(now, false);
        let mut expired = std::mem::take(&mut self.displaced);
        let overdue: Vec<_> = self
            .overdue(now)
            .into_iter()
            .map(|(id, reason)| (id, reason, self.queue.position(id), self.explain(now, id)))
            .collect();
        expired.reserve(overdue.len());
        for (id, reason, position, why) in overdue {
            let Some(waiter) = self.dequeue(id) else { continue };
            let position = position.min(COUNTED);
            let after = match self.capacity.upstream.closed_until(now) {
                Some(until) => until.saturating_duration_since(now),
                None => self.predictor.retry_after(&self.capacity, position + 1),
            };
            expired
                .push((waiter.who, Refusal { reason, position, retry_after: Some(after), why, most: None }));
        }
        expired
    }

    /// Returns each overdue call once, with the first reason that applies.
    fn overdue(&self, now: Instant) -> Vec<(WaiterId, Reason)> {
        let until = self.capacity.upstream.cooling_until();
        let waiters = &self.queue.waiters;
        let mut overdue: Vec<_> = waiters
            .by_deadline()
            .map_while(|(deadline, id)| {
                let reason = if self.draining {
                    Reason::Draining
                } else if deadline <= now {
                    Reason::Deadline
                } else if until.is_some_and(|until| until > deadline) {
                    // The call would be refused after the cool-down anyway. Refused now, it can
                    // still go elsewhere.
                    self.closed_reason()
                } else {
                    return None;
                };
                Some((id, reason))
            })
            .collect();
        if !self.capacity.upstream.is_closed() && !self.draining {
            let open = self.open(now);
            let spent = waiters.by_budget().take_while(|(ends, _)| *ends <= open);
            let in_time = |id| waiters.get(id).is_some_and(|waiter| waiter.ticket.deadline > now);
            overdue
                .extend(spent.map(|(_, id)| id).filter(|id| in_time(*id)).map(|id| (id, Reason::WaitBudget)));
        }
        overdue
    }

    /// Returns when to call [`Scheduler::expired`] and [`Scheduler::next`] again if nothing else
    /// happens.
    ///
    /// Returns `now` if something has become due since the last call.
    pub fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        if !self.displaced.is_empty() {
            return Some(now);
        }
        let (mut wake, _) = self.queue.waiters.first_deadline()?;
        self.tick(now);
        // Relevant only while calls wait: otherwise the next event lets time pass at the upstream.
        if let Some(at) = self.capacity.upstream.next_wake(now).filter(|at| *at > now) {
            wake = wake.min(at);
        }
        // Before the wait budgets, because it may reopen the target and let them run again.
        let ready = self.capacity.upstream.ready(now, false);
        if !self.capacity.upstream.is_closed()
            && let Some((ends, _)) = self.queue.waiters.first_budget()
        {
            let ends = now.checked_add(ends.saturating_sub(self.open(now)));
            wake = ends.map_or(wake, |ends| wake.min(ends));
        }
        match ready {
            Err(at) => Some(wake.min(at)),
            Ok(()) if self.capacity.has_slot() => {
                let mut selector = self.selector(now);
                if selector.pick().is_some() {
                    return Some(now);
                }
                // A probe may be sent, but not with a call that has failed here.
                let retries = selector.capacity.upstream.ready(now, true).err();
                earlier(earlier(Some(wake), retries), selector.soonest())
            }
            _ => Some(wake),
        }
    }

    /// Returns a call to preempt now, if preemption is configured. Call until `None`; each call is
    /// returned once.
    ///
    /// The call is the youngest one without an answer whose tenant and lane hold more than their
    /// floors, while a holder below its floor waits only for a slot.
    pub fn preempt(&mut self, now: Instant) -> Option<GrantId> {
        let Self { queue, capacity, order, borrowed, draining, .. } = self;
        let borrowed = borrowed.as_mut().filter(|_| !*draining)?;
        borrowed.next(Selector { now, queue, capacity, order })
    }

    /// Sets a fixed number of slots, replacing the configured or adaptive limit.
    ///
    /// For a pool, the number limits all replicas together. Lowering it cancels no call.
    pub fn set_limit(&mut self, limit: usize) {
        self.capacity.set_limit(limit);
    }

    /// Refuses all waiting and future calls. Calls in flight continue.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns `true` if calls wait or are in flight.
    pub fn is_busy(&self) -> bool {
        self.capacity.in_flight > 0 || self.has_waiting()
    }

    /// Returns `true` if a call waits.
    pub fn has_waiting(&self) -> bool {
        self.queue.len() > 0
    }

    /// Continues a cool-down that began at a target that shares this upstream.
    pub fn resume_cooldown(&mut self, now: Instant, until: Instant) {
        self.capacity.upstream.resume_cooldown(now, until);
    }

    /// Returns `true` if a cool-down or an outage admits nothing for some time yet.
    pub fn is_cooling(&self, now: Instant) -> bool {
        self.capacity.upstream.is_cooling(now)
    }

    /// Returns `true` if no cool-down or recovery is in progress; for a pool, if at least one
    /// replica accepts calls.
    pub fn is_open(&self) -> bool {
        self.capacity.upstream.is_open()
    }

    /// Returns the changes of the adaptive limits since the last call.
    pub fn take_limit_changes(&mut self) -> Vec<LimitChange> {
        self.capacity.upstream.take_limit_changes()
    }

    pub(super) fn selector(&mut self, now: Instant) -> Selector<'_, W> {
        Selector { now, queue: &mut self.queue, capacity: &mut self.capacity, order: &mut self.order }
    }

    /// Removes a call from the queue and updates its line.
    fn dequeue(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.remove(id)?;
        self.queue.place(waiter.tenant, waiter.ticket.lane);
        Some(waiter)
    }

    fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.queue.remove(id)?;
        self.capacity.upstream.on_dequeue(waiter.needs.class);
        Some(waiter)
    }

    /// Lets time pass at the upstream, which may make room for a call.
    pub(super) fn tick(&mut self, now: Instant) {
        self.queue.end_busy_periods(self.capacity.slot_use().by_lane);
        self.capacity.tick(now);
    }

    /// Starts measuring a gap if a waiting call could be dispatched.
    pub(super) fn watch(&mut self, now: Instant) {
        let could_go = self.capacity.has_slot() && !self.queue.lanes.is_empty() && self.is_open();
        let could_go = could_go && (!self.capacity.is_sized() || self.selector(now).pick().is_some());
        self.gap.watch(now, could_go);
    }

    /// Returns for how long the target has been open. Wait budgets run on this clock.
    pub(super) fn open(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).saturating_sub(self.capacity.upstream.closed(now))
    }

    /// Returns the refusal reason for a closed target.
    pub(super) fn closed_reason(&self) -> Reason {
        if self.capacity.closed_rule() == Rule::Outage { Reason::Outage } else { Reason::CoolDown }
    }
}
