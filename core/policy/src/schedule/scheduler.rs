//! [`Scheduler`], which coordinates the queue, the capacity and the dispatch order. See [the parent
//! module](super).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{
    Borrowed, Candidate, Capacity, Floors, ForcedDecision, Gap, Grant, GrantId, LimitChange, MAX_POSITION,
    ObjectiveWait, Order, Paces, Pick, Queue, QueueSpace, Refusal, Requirements, Resources, Retry, Rule,
    SchedulerSettings, Selector, TenantId, Ticket, Turn, Waiter, WaiterId, earlier,
};
use crate::Reason;
use tidegate_config::OnFull;
use tidegate_share::MAX_CAP;

/// The admission scheduler of one target or tool. See [the module](super).
///
/// `W` is the driver's handle to the caller of a waiting call. The driver gets it back when the
/// call is dispatched or refused.
#[derive(Debug)]
pub struct Scheduler<W> {
    /// The settings, without `tenants`, which the queue stores.
    pub(super) settings: SchedulerSettings,
    pub(super) queue: Queue<W>,
    pub(super) capacity: Capacity,
    pub(super) order: Order,
    /// The calls that may be cancelled to free a slot for a tenant or lane below its floor (its
    /// reserved slots), or `None` if preemption is not configured.
    pub(super) borrowed: Option<Borrowed>,
    pub(super) paces: Paces,
    /// The wait budgets of calls with a TTFT objective.
    pub(super) objective_wait: ObjectiveWait,
    pub(super) gap: Gap,
    /// The calls that were shed, that is, removed from a full queue for a call of a higher lane,
    /// until [`Scheduler::expired`] returns them.
    shed_calls: Vec<(W, Refusal)>,
    /// When the scheduler was created.
    pub(super) started_at: Instant,
    /// Whether all waiting and new calls are refused.
    pub(super) draining: bool,
}

impl<W> Scheduler<W> {
    /// Creates a scheduler without limits for the provider's rates or for the memory of a single
    /// server.
    pub fn new(settings: &SchedulerSettings, now: Instant) -> Self {
        Self::over(settings, None, now)
    }

    /// Creates a scheduler that also limits the provider's rates and, if its size is known, the
    /// memory of a single server.
    pub fn with(settings: &SchedulerSettings, resources: Resources, now: Instant) -> Self {
        Self::over(settings, Some(resources), now)
    }

    fn over(settings: &SchedulerSettings, resources: Option<Resources>, now: Instant) -> Self {
        let queue = Queue::new(settings, now);
        let floors = Floors::new(&settings.lanes, &queue.tenants);
        Self {
            queue,
            capacity: Capacity::new(settings, resources, now),
            order: Order { floors, reservation: None, aging: settings.aging },
            borrowed: settings.reclaim.then(Borrowed::default),
            paces: Paces::default(),
            objective_wait: ObjectiveWait::new(settings),
            gap: Gap::default(),
            shed_calls: Vec::new(),
            started_at: now,
            draining: false,
            settings: SchedulerSettings { tenants: BTreeMap::new(), ..settings.clone() },
        }
    }

    /// Queues a call for which [`Scheduler::try_admit`] has just returned `Ok(None)`, and returns
    /// its ID.
    ///
    /// If the queue is full, a waiting call of a lower lane is shed; the next
    /// [`Scheduler::expired`] returns it. `who` is returned by [`Scheduler::next`] or
    /// [`Scheduler::expired`] when the call leaves the queue, unless the call is withdrawn.
    pub fn enqueue(&mut self, now: Instant, mut ticket: Ticket, who: W) -> WaiterId {
        let id = self.queue.tenant(&ticket.tenant, now);
        if !ticket.ignores_queue_size()
            && let QueueSpace::Replacing(victim) = self.queue.space(id, ticket.lane)
        {
            self.shed(now, victim);
        }
        ticket.wait = self.wait_budget(&ticket);
        let needs = self.capacity.needs(&ticket);
        self.capacity.upstream.waiting_mut(needs.class).into_iter().for_each(|waiting| *waiting += 1);
        let clock = self.wait_clock(now);
        let call = self.queue.enqueue(id, ticket, needs, clock, who);
        self.watch_gap(now);
        call
    }

    /// Removes a waiting call to make room for a call of a higher lane. The next
    /// [`Scheduler::expired`] returns the removed call with the reason [`Reason::Shed`].
    fn shed(&mut self, now: Instant, call: WaiterId) {
        let position = self.queue.position(call).min(MAX_POSITION);
        let why = self.explain(now, call);
        let Some(waiter) = self.dequeue(call) else { return };
        let retry = Retry::After(self.queue.len());
        let refusal = self.refusal(now, Reason::Shed, position, retry, why);
        self.shed_calls.push((waiter.who, refusal));
    }

    /// Admits a call even if the rules do not permit it (observe mode). Also returns what
    /// [`Scheduler::try_admit`] would have decided: `Ok` if the call would have been admitted or
    /// queued, otherwise the refusal.
    pub fn force(&mut self, now: Instant, ticket: &Ticket) -> (Box<Grant>, Result<ForcedDecision, Refusal>) {
        let verdict = match self.try_admit(now, ticket) {
            Ok(Some(grant)) => return (grant, Ok(ForcedDecision::Admitted)),
            Ok(None) => Ok(ForcedDecision::WouldWait),
            Err(refusal) => Err(refusal),
        };
        let tenant = self.queue.tenant(&ticket.tenant, now);
        let class = self.capacity.upstream.class(ticket);
        let call = Candidate { tenant, ticket, needs: Requirements { class, ..Requirements::default() } };
        self.capacity.upstream.measure_memory();
        let grant = self.grant(now, &call, None, false);
        // The tenant may have reached its cap while other calls of it wait.
        self.queue.place_after(tenant, ticket.lane);
        (grant, verdict)
    }

    /// Dispatches the next waiting call that is admissible, and returns it with its slot. Returns
    /// `None` if no waiting call is admissible.
    ///
    /// The driver must call this method until it returns `None` after each event.
    pub fn next(&mut self, now: Instant) -> Option<(W, Box<Grant>)> {
        self.tick(now);
        let mut selector = self.selector(now);
        let Some(pick) = selector.pick() else {
            self.gap.stop(now);
            return None;
        };
        let lane = selector.queue.waiters.get(pick.next.call)?.ticket.lane;
        let debtor = selector.debtor(lane);
        let is_last_slot = self.capacity.is_last_slot();
        let waiter = self.remove(pick.next.call)?;
        let Pick { next, floor, is_early } = pick;
        let out_of_turn = debtor == Some(waiter.tenant) || floor.is_some();
        let mut grant = self.grant(now, &waiter.candidate(), next.kept, out_of_turn);
        grant.used_wait = self.wait_clock(now).saturating_sub(waiter.since);
        self.order.floors.on_dispatch(floor, grant.id);
        let turn = Turn { lane, is_early };
        self.queue.lanes.on_dispatch(now, turn, grant.id, waiter.ticket.cost, is_last_slot);
        self.queue.place_after(waiter.tenant, lane);
        Some((waiter.who, grant))
    }

    /// Removes a waiting call because its caller has cancelled it. Returns `false` if the call is
    /// not waiting any more.
    pub fn withdraw(&mut self, id: WaiterId) -> bool {
        self.dequeue(id).is_some()
    }

    /// Removes and returns the calls that leave the queue without a slot: calls past their
    /// deadline, wait budget or client's timeout, calls that may not wait for the end of a
    /// cool-down, calls that were shed, and all calls if the scheduler drains.
    ///
    /// [`Refusal::position`] of each call is counted before any of them is removed.
    pub fn expired(&mut self, now: Instant) -> Vec<(W, Refusal)> {
        self.tick(now);
        let overdue = if self.has_waiting() { self.overdue(now) } else { Vec::new() };
        let overdue = overdue.into_iter();
        let explain = |(id, reason)| (id, reason, self.queue.position(id), self.explain(now, id));
        let overdue: Vec<_> = overdue.map(explain).collect();
        let mut expired = std::mem::take(&mut self.shed_calls);
        for (id, reason, position, why) in overdue {
            let Some(waiter) = self.dequeue(id) else { continue };
            let position = position.min(MAX_POSITION);
            let reopens = self.capacity.upstream.closed_until(now);
            let retry = reopens.map_or(Retry::After(position + 1), Retry::At);
            expired.push((waiter.who, self.refusal(now, reason, position, retry, why)));
        }
        if !self.has_waiting() {
            self.order.reservation = None;
            self.gap.stop(now);
        }
        expired
    }

    /// Returns the waiting calls that must be refused now, each once and with the first reason that
    /// applies.
    fn overdue(&self, now: Instant) -> Vec<(WaiterId, Reason)> {
        let until = self.capacity.upstream.cooling_until();
        let waiters = &self.queue.waiters;
        let late_reason = |deadline: Instant| {
            if self.draining {
                Some(Reason::Draining)
            } else if deadline <= now {
                Some(Reason::Deadline)
            } else {
                // The call would be refused after the cool-down anyway. Refused now, it can still
                // go elsewhere.
                until.is_some_and(|until| until > deadline).then(|| self.closed_reason())
            }
        };
        let by_deadline = waiters.by_deadline.iter();
        let mut overdue: Vec<_> =
            by_deadline.map_while(|&(deadline, id)| Some((id, late_reason(deadline)?))).collect();
        let is_in_time = |ticket: &&Ticket| late_reason(ticket.deadline).is_none();
        let in_time = |id| waiters.get(id).map(|waiter| &waiter.ticket).filter(is_in_time);
        let has_client_timeouts = self.client_timeouts_apply();
        if has_client_timeouts {
            let timed_out = waiters.by_client_timeout.iter().take_while(|(at, _)| *at <= now);
            let timed_out = timed_out.filter(|(_, id)| in_time(*id).is_some());
            overdue.extend(timed_out.map(|(_, id)| (*id, Reason::ClientTimeout)));
        }
        if self.budgets_run() {
            let (is_closed, clock) = (self.capacity.upstream.is_closed(), self.wait_clock(now));
            // Calls whose budget ends during the cool-down are refused now.
            let since_start = |until: Instant| until.saturating_duration_since(self.started_at);
            let reopens = until.map_or(Duration::ZERO, since_start);
            let spent = waiters.by_budget.iter().take_while(|(ends, _)| *ends <= clock || *ends < reopens);
            overdue.extend(spent.filter_map(|(_, id)| {
                let by_client = in_time(*id)?.client_timeout.is_some_and(|at| at <= now);
                let reason = if is_closed { self.closed_reason() } else { Reason::WaitBudget };
                let reason = if by_client { Reason::ClientTimeout } else { reason };
                (!(by_client && has_client_timeouts)).then_some((*id, reason))
            }));
        }
        overdue
    }

    /// Returns when the driver must call [`Scheduler::expired`] and [`Scheduler::next`] again if
    /// nothing else happens before.
    ///
    /// Returns `now` if one of them has something to return already, and `None` if no call waits.
    pub fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        if !self.shed_calls.is_empty() {
            return Some(now);
        }
        let (mut wake, _) = *self.queue.waiters.by_deadline.first()?;
        self.tick(now);
        // Relevant only while calls wait: otherwise the next event lets time pass at the upstream.
        let leases = [&self.capacity.lease, &self.capacity.first_token_lease].into_iter().flatten();
        let leases = leases.filter_map(|lease| lease.next_wake(now));
        for at in self.capacity.upstream.next_wake(now).into_iter().chain(leases).filter(|at| *at > now) {
            wake = wake.min(at);
        }
        // Before the wait budgets, because it may reopen the target and let them run again.
        let ready = self.capacity.upstream.ready(now, false);
        let waiters = &self.queue.waiters;
        let budget = waiters.by_budget.first().filter(|_| self.budgets_run());
        let budget = budget.and_then(|(ends, _)| now.checked_add(ends.saturating_sub(self.wait_clock(now))));
        let client = waiters.by_client_timeout.first().filter(|_| self.client_timeouts_apply());
        wake = budget.into_iter().chain(client.map(|(at, _)| *at)).fold(wake, Instant::min);
        match ready {
            Err(at) => Some(wake.min(at)),
            Ok(()) if self.capacity.has_slot() => {
                let mut selector = self.selector(now);
                if selector.pick().is_some() {
                    return Some(now);
                }
                // A probe may be sent, but not with a call that has failed here.
                let retries = selector.capacity.upstream.ready(now, true).err();
                let released = selector.queue.next_release(now, selector.capacity.upstream.load());
                let others = earlier(retries, released);
                earlier(earlier(Some(wake), others), selector.soonest())
            }
            _ => Some(wake),
        }
    }

    /// Returns a call in flight that the driver should cancel and queue again, to free its slot for
    /// a tenant or lane that has fewer slots than are reserved for it (its floor). Returns `None`
    /// if there is no such call, or if preemption is not configured.
    ///
    /// The call is the most recently admitted one without a response head whose tenant and lane
    /// both hold more slots than their floors, and whose slot a waiting call of a tenant or lane
    /// below its floor would use. Call this method until it returns `None`; each call is returned
    /// once.
    pub fn preempt(&mut self, now: Instant) -> Option<GrantId> {
        let Self { queue, capacity, order, borrowed, draining, .. } = self;
        let borrowed = borrowed.as_mut().filter(|_| !*draining)?;
        borrowed.next(Selector { now, queue, capacity, order })
    }

    /// Sets a fixed number of slots, which replaces the configured or adaptive limit.
    ///
    /// For a pool, the number applies to all replicas together. Lowering it cancels no call: slots
    /// are removed as their calls end.
    pub fn set_limit(&mut self, limit: usize) {
        self.capacity.upstream.set_limit(limit);
        if let Some(lease) = &mut self.capacity.lease {
            lease.set_cap(limit);
        }
        // Nothing bounds the first tokens any more, here.
        if let Some(lease) = &mut self.capacity.first_token_lease {
            lease.set_cap(MAX_CAP);
        }
        self.capacity.read_limits();
    }

    /// Starts draining: all waiting and new calls are refused from now on. Calls in flight
    /// continue.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns `true` if a call is waiting or in flight.
    pub fn is_busy(&self) -> bool {
        self.capacity.in_flight > 0 || self.has_waiting()
    }

    /// Returns `true` if a call is waiting.
    pub fn has_waiting(&self) -> bool {
        self.queue.len() > 0
    }

    /// Continues, until `until`, a cool-down that began at another scheduler of the same upstream.
    /// No call is admitted before that time.
    pub fn resume_cooldown(&mut self, now: Instant, until: Instant) {
        self.capacity.upstream.resume_cooldown(now, until);
    }

    /// Sets whether calls with several credentials or models use the upstream, so that the caller
    /// of this method keeps a cool-down for each of them. While they do,
    /// [`Scheduler::resume_cooldown`] has no effect. Limits that rate headers announced before are
    /// forgotten. Each of the two concerns only some of the calls.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn set_several_keys(&mut self, now: Instant, is_several: bool) {
        self.capacity.upstream.set_several_keys(is_several);
        if let Some(mut budgets) = self.capacity.budgets.lock().filter(|_| is_several) {
            budgets.forget_announced(now);
        }
    }

    /// Ends the cool-down that a `Retry-After` began, because it concerns only some of the calls.
    /// Has no effect on outages.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn end_retry_after(&mut self, now: Instant) {
        self.capacity.upstream.end_retry_after(now);
    }

    /// Returns `true` if a call may wait until `until` for the end of the cool-down of its
    /// credential and model, which the caller of this method keeps. The rules are those for a
    /// cool-down of the whole target.
    pub fn may_wait_until(&self, now: Instant, ticket: &Ticket, until: Instant) -> bool {
        until <= self.closed_wait_ends(now, ticket) && (!self.refuses() || self.is_waiting_retry(ticket))
    }

    /// Returns `true` if the target does not queue calls.
    pub(super) fn refuses(&self) -> bool {
        self.settings.on_full == OnFull::Refuse
    }

    /// Returns `true` if a call is a retry that may wait although others may not: it cannot go to
    /// another target.
    pub(super) fn is_waiting_retry(&self, ticket: &Ticket) -> bool {
        ticket.queue_tag.is_some() && !(self.refuses() && self.settings.has_fallback)
    }

    /// Returns until when the upstream asked callers to wait, or `None` if it did not, or if it is
    /// down.
    pub fn waits_until(&self) -> Option<Instant> {
        let upstream = &self.capacity.upstream;
        upstream.cooling_until().filter(|_| !upstream.is_down())
    }

    /// Returns `true` if the upstream is in an outage in which it did not only answer 429. For a
    /// pool, returns `true` if no replica accepts calls, and none of them because it is full.
    pub fn is_in_outage(&self) -> bool {
        let upstream = &self.capacity.upstream;
        upstream.as_pool().map_or_else(|| upstream.cooldown().is_outage(), |pool| pool.is_in_outage())
    }

    /// Returns `true` if a new call would have to wait for the end of a cool-down or an outage.
    pub fn is_cooling(&self, now: Instant) -> bool {
        self.capacity.upstream.is_cooling(now)
    }

    /// Returns the number of slots in force. If several processes share an adaptive limit, these
    /// are the slots of all of them.
    pub fn slots_in_force(&self) -> usize {
        self.capacity.upstream.limits(self.capacity.in_flight).slots
    }

    /// Returns `true` if no cool-down, outage or recovery is in progress. For a pool, returns
    /// `true` if at least one replica accepts calls.
    pub(super) fn is_open(&self) -> bool {
        self.capacity.upstream.is_open()
    }

    /// Removes and returns the changes of the adaptive limits since the last call of this method,
    /// at most 64 for each limit.
    pub fn take_limit_changes(&mut self) -> Vec<LimitChange> {
        self.capacity.upstream.take_limit_changes()
    }

    pub(super) fn selector(&mut self, now: Instant) -> Selector<'_, W> {
        Selector { now, queue: &mut self.queue, capacity: &mut self.capacity, order: &mut self.order }
    }

    /// Removes a waiting call, and updates the order of the tenants. Returns `None` if the call is
    /// not waiting.
    fn dequeue(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.remove(id)?;
        self.queue.place_after(waiter.tenant, waiter.ticket.lane);
        Some(waiter)
    }

    /// Removes a waiting call, but does not update the order of the tenants in its lane. Returns
    /// `None` if the call is not waiting.
    fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.queue.remove(id)?;
        self.capacity.upstream.waiting_mut(waiter.needs.class).into_iter().for_each(|waiting| *waiting -= 1);
        Some(waiter)
    }

    /// Lets the upstream update its time-dependent limits, updates which replicas may take each
    /// waiting call, and forgives the debts in fair queueing of lanes that have neither waiting
    /// calls nor calls in flight.
    pub(super) fn tick(&mut self, now: Instant) {
        self.queue.end_busy_periods(self.capacity.by_lane);
        self.capacity.tick(now);
        self.capacity.update_closed(now);
        self.reclassify_if_refusing_changed(now);
        self.update_held(now);
    }

    /// Returns `true` if the upstream is divided among tenants, because its limit is adaptive. See
    /// [`tenant_shares`](super::tenant_shares).
    fn divides_among_tenants(&self) -> bool {
        self.settings.adaptive.is_some()
    }

    /// Counts the tenant as active. Call this after a new call of the tenant, and after each change
    /// of the tenant's slots.
    pub(super) fn on_active(&mut self, now: Instant, tenant: TenantId) {
        if self.divides_among_tenants() {
            let Capacity { upstream, limits, .. } = &self.capacity;
            self.queue.on_active(now, tenant, upstream.load().shared_slots(limits.slots));
        }
    }

    /// Updates which tenants are held because of their share of the capacity.
    fn update_held(&mut self, now: Instant) {
        if !(self.divides_among_tenants() && self.queue.refresh_active(now)) {
            return;
        }
        let Capacity { upstream, limits, in_flight, .. } = &self.capacity;
        let in_memory = || upstream.calls_in_memory();
        let spare = self.queue.update_held(now, upstream.load(), limits.slots, *in_flight, in_memory);
        self.capacity.upstream.keep_free(spare);
    }

    /// Starts to measure a [`Gap`] if a waiting call could be dispatched now and was not.
    pub(super) fn watch_gap(&mut self, now: Instant) {
        self.update_held(now);
        let could_go = self.capacity.has_slot() && !self.queue.lanes.is_empty() && self.is_open();
        let could_go = could_go && (!self.capacity.is_sized() || self.selector(now).pick().is_some());
        self.gap.watch(now, could_go);
    }

    /// Returns how long a call may wait: its own wait budget or, if that is less, the wait with
    /// which it can still meet its TTFT objective. Returns `None` if it may wait until its
    /// deadline.
    pub(super) fn wait_budget(&self, ticket: &Ticket) -> Option<Duration> {
        ticket.wait.into_iter().chain(self.objective_wait.budget(ticket)).min()
    }

    /// Returns the time on the clock of wait budgets: the total time since the scheduler was
    /// created in which [wait budgets ran](Scheduler::budgets_run).
    pub(super) fn wait_clock(&self, now: Instant) -> Duration {
        let upstream = &self.capacity.upstream;
        let stood = if self.settings.has_fallback { Duration::ZERO } else { upstream.closed(now) };
        now.saturating_duration_since(self.started_at).saturating_sub(stood)
    }

    /// Returns `true` if wait budgets run now: the target is not closed (see [`Ticket::wait`]), or
    /// refused calls are sent to another target.
    fn budgets_run(&self) -> bool {
        self.settings.has_fallback || !self.capacity.upstream.is_closed()
    }

    /// Returns `true` if the timeouts of the callers' own clients end waits now: the target is down
    /// or has no replica that accepts calls. See [`Ticket::client_timeout`].
    fn client_timeouts_apply(&self) -> bool {
        let upstream = &self.capacity.upstream;
        upstream.is_closed() && upstream.is_unavailable()
    }

    /// Returns until when a call may wait for a closed target to accept calls again: until its
    /// deadline or, if refused calls are sent to another target, the end of its wait budget if that
    /// is earlier.
    pub(super) fn closed_wait_ends(&self, now: Instant, ticket: &Ticket) -> Instant {
        let wait = self.wait_budget(ticket).filter(|_| self.settings.has_fallback);
        let ends = wait.and_then(|wait| now.checked_add(wait));
        ends.map_or(ticket.deadline, |ends| ends.min(ticket.deadline))
    }

    /// Returns the reason to report for a refusal while the target is closed: [`Reason::Outage`] or
    /// [`Reason::CoolDown`].
    pub(super) fn closed_reason(&self) -> Reason {
        if self.capacity.closed_rule() == Rule::Outage { Reason::Outage } else { Reason::CoolDown }
    }
}
