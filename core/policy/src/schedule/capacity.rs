//! Owns what calls compete for: the slots and the memory of the upstream, and the provider's rate
//! budgets.
//!
//! Also counts the calls in flight, and records since when slots, memory or budgets have been
//! short.
//!
//! # Invariants
//!
//! - The calls in flight, in total and by lane, are those that were admitted and have not ended.
//! - `limits` is what the upstream returns for the calls in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::{
    Admitted, Available, Candidate, GrantId, Limiter, Limits, Pool, Requirements, Rule, SchedulerSettings,
    SingleUpstream, Span, Ticket, Tracked, Upstream, UpstreamSlot,
};
use crate::budget::{AvailableBudget, BudgetKind, Charge, Lack, LimitOrigin, Need, RateBudgets};
use crate::{Lane, adaptive::Ended, kv::Kv, placement::ReplicaSet};
use tidegate_config::TenantConfig;
use tidegate_protocol::vllm::EngineMetrics;
use tidegate_share::Lease;
use tidegate_tokens::Demand;

/// The slots, rate budgets and memory of a target, and the number of calls that use them. See [the
/// module](self).
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) upstream: Box<dyn Upstream>,
    pub(super) budgets: Budgets,
    /// For each [`Rule`], the span of time in which it has kept calls from being dispatched.
    /// Recorded only for [`Rule::Slots`], [`Rule::Share`], [`Rule::FirstTokens`],
    /// [`Rule::Reserved`] and the rules in [`Rule::SIZES`].
    pub(super) blocked: [Span; Rule::COUNT],
    /// Whether any tenant has its own limit of tokens per minute. The queue accounts for these
    /// tokens.
    has_tenant_tokens: bool,
    /// Whether some calls may fit while others do not, even without rate budgets: because the
    /// memory, the replicas or the tenants' own tokens are limited.
    is_sized: bool,
    pub(super) in_flight: usize,
    /// The number of calls in flight in each lane, indexed by lane.
    pub(super) by_lane: [usize; 3],
    /// The maximum of `in_flight` so far.
    pub(super) peak: usize,
    /// The number of attempts that were admitted so far.
    pub(super) grants: u64,
    /// When an attempt was last admitted, or `None` if there was none.
    pub(super) last_grant: Option<Instant>,
    /// The number of slots of the upstream, and what keeps further calls from being sent, as of the
    /// last event. Cached because each decision reads them.
    pub(super) limits: Limits,
    /// The slots that this process may use of a limit that several processes share. `None`: the
    /// limit is not shared.
    pub(super) lease: Option<Box<Lease>>,
    /// The calls of this process that may await their first token, of those of all processes.
    /// `None`: the limit is not shared, or not adaptive.
    pub(super) first_token_lease: Option<Box<Lease>>,
}

impl Capacity {
    pub(super) fn new(settings: &SchedulerSettings, resources: Option<Resources>, now: Instant) -> Self {
        let resources = resources.map(|Resources { budgets, kv }| (Budgets::new(budgets), kv));
        let (budgets, memory) = resources.unwrap_or_default();
        let upstream: Box<dyn Upstream> = match Pool::new(settings, now) {
            Some(pool) => Box::new(pool),
            None => Box::new(SingleUpstream::new(settings, memory, now)),
        };
        let has_tokens = |tenant: &TenantConfig| tenant.tpm.is_some();
        let has_tenant_tokens =
            has_tokens(&settings.default_tenant) || settings.tenants.values().any(has_tokens);
        Self {
            limits: upstream.limits(0),
            is_sized: has_tenant_tokens || upstream.is_sized(),
            upstream,
            budgets,
            blocked: Default::default(),
            has_tenant_tokens,
            in_flight: 0,
            by_lane: [0; 3],
            peak: 0,
            grants: 0,
            last_grant: None,
            lease: None,
            first_token_lease: None,
        }
    }

    /// Returns `true` if a slot is free and another call may await its first token.
    pub(super) fn has_slot(&self) -> bool {
        self.limits.shortage.is_none()
    }

    /// Returns `true` if at most one slot is free, so that the next call takes the last one.
    pub(super) fn is_last_slot(&self) -> bool {
        self.in_flight + 1 >= self.limits.slots
    }

    /// Returns `true` if some calls may fit while others do not, because tokens, memory or replicas
    /// are limited. If `false`, either the next call in order can be dispatched or none can.
    pub(super) fn is_sized(&self) -> bool {
        self.is_sized || self.budgets.is_limiting()
    }

    /// Returns `true` if a rate budget or a tenant's own budget limits calls, so that time alone
    /// may make a waiting call admissible.
    pub(super) fn has_rates(&self) -> bool {
        self.has_tenant_tokens || self.budgets.is_limiting()
    }

    /// Returns the tokens, the memory and the class of replicas that a call requires. The
    /// requirements are zero if the target limits neither tokens, memory nor replicas.
    pub(super) fn needs(&mut self, ticket: &Ticket) -> Requirements {
        let has_failed = ticket.has_failed;
        if !self.is_sized && self.budgets.budgets.is_none() {
            return Requirements { has_failed, ..Requirements::default() };
        }
        let tenant_tokens = u32::try_from(ticket.demand.total()).unwrap_or(u32::MAX);
        let need =
            Need { kv: self.upstream.memory_need(&ticket.demand), ..self.budgets.need(&ticket.demand) };
        Requirements { need, tenant_tokens, class: self.upstream.class(ticket), has_failed }
    }

    /// Returns the rule that the call can never satisfy, because the memory or a rate budget is too
    /// small for it even when unused, and the size in tokens of the largest call that the rule
    /// permits. Returns `None` if the call can be admitted at some time.
    pub(super) fn oversize(&self, call: &Candidate<'_>) -> Option<(Rule, u64)> {
        let most = self.upstream.oversize(call).map(|most| (Rule::Kv, most));
        most.or_else(|| self.budgets.oversize(&call.ticket.demand))
    }

    /// Returns `true` if the estimated need exceeds the memory or a rate budget even when unused.
    /// Such a call is sent only if the budget is unused or the estimate becomes smaller.
    pub(super) fn is_exceeded_by(&self, need: &Need) -> bool {
        need.kv > self.upstream.max_memory_need() || self.budgets.is_exceeded_by(need)
    }

    /// Measures the memory and the rate budgets, and returns what is available to calls now.
    pub(super) fn available(&mut self, now: Instant) -> Available {
        let available = self.upstream.available(self.in_flight, self.budgets.room(now));
        Available { unfailed_only: self.upstream.ready(now, true).is_err(), ..available }
    }

    /// Returns `true` if a call fits into `available`, including an exact check of its memory.
    pub(super) fn fits(&self, call: &Candidate<'_>, available: &Available) -> bool {
        available.fits(&call.needs) && self.upstream.has_memory(call, available)
    }

    /// Returns the rule that keeps a call from fitting into `available`, and when time alone
    /// satisfies the rule. The time is `None` if only the end of another call or another process
    /// can do so. Returns `None` if the call fits.
    pub(super) fn lacking(
        &self,
        now: Instant,
        call: &Candidate<'_>,
        available: &Available,
    ) -> Option<(Rule, Option<Instant>)> {
        if available.room_for(&call.needs).is_none() {
            return Some((Rule::Replicas, None));
        }
        if !self.upstream.has_memory(call, available) {
            return Some((Rule::Kv, None));
        }
        self.budgets.lacking(now, &call.needs.need)
    }

    /// Returns when the rate budgets permit a call if no other call is dispatched before. Returns
    /// `None` if `room` has too little memory, because time alone does not release memory, or if it
    /// is not known when the budgets permit the call.
    pub(super) fn ready_at(&self, now: Instant, need: &Need, room: &AvailableBudget) -> Option<Instant> {
        if need.kv <= room.max_need.kv { self.budgets.ready_at(now, need) } else { None }
    }

    /// Returns the rule to report while the upstream is closed: [`Rule::Outage`] if it is down,
    /// otherwise [`Rule::CoolDown`].
    pub(super) fn closed_rule(&self) -> Rule {
        if self.upstream.is_down() { Rule::Outage } else { Rule::CoolDown }
    }

    /// Lets the upstream update its time-dependent limits, and updates `limits`.
    pub(super) fn tick(&mut self, now: Instant) {
        let has_changed = self.upstream.tick(now);
        if !has_changed && self.lease.is_none() {
            debug_assert_eq!(self.limits, self.upstream.limits(self.in_flight));
            return;
        }
        [&mut self.lease, &mut self.first_token_lease]
            .into_iter()
            .flatten()
            .for_each(|lease| lease.tick(now));
        self.refresh_limits(now);
    }

    /// Updates whether the upstream is closed: a cool-down may have ended, a hanging probe may have
    /// reopened it, and the next probe may lack a slot.
    pub(super) fn update_closed(&mut self, now: Instant) {
        if !self.upstream.cooldown().is_open() {
            let has_slot = self.has_slot();
            let _ = self.upstream.ready(now, false);
            self.upstream.set_has_slot(now, has_slot);
        }
    }

    /// Takes a slot and memory for a call. The call gets no memory of the `reserved` replicas if it
    /// fits elsewhere. The caller must also call [`Capacity::charge`].
    pub(super) fn admit(
        &mut self,
        now: Instant,
        call: &Candidate<'_>,
        reserved: ReplicaSet,
        exceeds_share: bool,
    ) -> (GrantId, UpstreamSlot) {
        self.in_flight += 1;
        self.by_lane[call.ticket.lane as usize] += 1;
        self.peak = self.peak.max(self.in_flight);
        self.grants += 1;
        self.last_grant = Some(now);
        let id = GrantId(self.grants);
        let slot = self
            .upstream
            .admit(now, Admitted { id, call, in_flight: self.in_flight, reserved, exceeds_share });
        self.refresh_and_record(now);
        (id, slot)
    }

    /// Charges a call to the rate budgets. Returns `None` if the target has none.
    pub(super) fn charge(&self, now: Instant, ticket: &Ticket) -> Option<Charge> {
        self.budgets.lock().map(|mut budgets| budgets.charge(now, &ticket.demand))
    }

    /// Reports an event of an attempt to the adaptive limit that counts the attempt. Does nothing
    /// if the limit is fixed.
    pub(super) fn report(
        &mut self,
        now: Instant,
        slot: &mut UpstreamSlot,
        event: impl FnOnce(&mut Limiter, &mut Tracked),
    ) {
        let Some(tracked) = &mut slot.tracked else { return };
        if let Some(limiter) = self.upstream.limiter_of(slot.assignment.as_deref()) {
            let awaited = tracked.awaits;
            event(limiter, tracked);
            if let Some(lease) = self.first_token_lease.as_mut().filter(|_| awaited && !tracked.awaits) {
                lease.on_release(now, limiter.awaiting);
            }
        }
        self.refresh_and_record(now);
    }

    /// Reports the outcome of an attempt to the adaptive limit, and stops counting the attempt as
    /// in flight. The caller must call [`Capacity::release`] afterwards.
    pub(super) fn end(&mut self, now: Instant, lane: Lane, slot: &mut UpstreamSlot, how: Ended) {
        self.upstream.cooldown_mut().on_ended(now, self.in_flight);
        self.in_flight -= 1;
        self.by_lane[lane as usize] -= 1;
        if let Some(lease) = &mut self.lease {
            lease.on_release(now, self.in_flight);
        }
        if let Some(tracked) = slot.tracked.take() {
            if let Some(limiter) = self.upstream.limiter_of(slot.assignment.as_deref()) {
                let awaited = tracked.awaits;
                limiter.on_end(now, tracked, how);
                if let Some(lease) = self.first_token_lease.as_mut().filter(|_| awaited) {
                    lease.on_release(now, limiter.awaiting);
                }
            }
            self.read_limits();
        }
    }

    /// Releases the slot and the memory of an ended attempt. Returns `true` if the replicas of the
    /// pool changed, because a draining replica has left with its last call.
    pub(super) fn release(&mut self, now: Instant, id: GrantId, slot: &mut UpstreamSlot) -> bool {
        let have_changed = self.upstream.release(now, id, slot);
        self.refresh_and_record(now);
        have_changed
    }

    /// Applies the metrics of the engine of a single server. Returns `true` if they limit the
    /// calls' memory for the first time, so that calls can differ in what they need.
    pub(super) fn on_engine_metrics(&mut self, now: Instant, metrics: &EngineMetrics) -> bool {
        self.upstream.on_engine_metrics(now, metrics);
        let is_newly_sized = !self.is_sized && self.upstream.is_sized();
        self.is_sized |= is_newly_sized;
        is_newly_sized
    }

    /// Runs `operation` on the pool, updates `limits`, and returns the result of `operation`.
    /// Returns `None` if the upstream is a single server.
    pub(super) fn with_pool<T>(&mut self, operation: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let result = operation(self.upstream.as_pool_mut()?);
        self.read_limits();
        Some(result)
    }

    /// Updates `limits`, and records in `blocked` whether all slots are in use, or too many calls
    /// await their first token.
    pub(super) fn refresh_and_record(&mut self, now: Instant) {
        self.read_limits();
        for rule in [Rule::Slots, Rule::Share, Rule::FirstTokens] {
            self.blocked[rule as usize].set(now, self.limits.shortage == Some(rule));
        }
    }

    /// Records in `blocked` which requirement, `lack`, keeps the first call in order from being
    /// dispatched although slots are free. `None`: no requirement. `is_held` is `true` if something
    /// is reserved for that call.
    pub(super) fn record_shortage(&mut self, now: Instant, lack: Option<Rule>, is_held: bool) {
        for rule in Rule::SIZES {
            self.blocked[rule as usize].set(now, lack == Some(rule));
        }
        self.blocked[Rule::Reserved as usize].set(now, is_held);
    }

    /// Updates `limits`. If [`Limits::shortage`] has changed, also records the change in `blocked`.
    pub(super) fn refresh_limits(&mut self, now: Instant) {
        let before = self.limits.shortage;
        self.read_limits();
        if before != self.limits.shortage {
            self.refresh_and_record(now);
        }
    }

    /// Updates `limits`.
    pub(super) fn read_limits(&mut self) {
        if let Some(lease) = &mut self.lease
            && let Some(limiter) = self.upstream.limiter_of(None)
        {
            limiter.apply_leases(lease, self.first_token_lease.as_deref_mut());
        }
        self.limits = self.upstream.limits(self.in_flight);
        if let Some(lease) = &self.lease {
            let slots = lease.in_force();
            if self.limits.shortage != Some(Rule::Slots) && self.in_flight >= slots {
                self.limits.shortage = Some(Rule::Share);
            }
            self.limits.slots = self.limits.slots.min(slots);
        }
    }
}

/// The rate budgets and the memory of a target, as given to
/// [`Scheduler::with`](super::Scheduler::with). The scheduler locks the budgets only for the
/// duration of one of its own methods.
#[derive(Debug)]
pub struct Resources {
    /// The provider's rate budgets. Several schedulers may share them.
    ///
    /// Tokens and requests that a scheduler reserves for an aged call are reserved against its own
    /// calls only. If the calls of another scheduler take the tokens of shared budgets as they
    /// accrue, a larger call can wait until its deadline.
    pub budgets: Arc<Mutex<RateBudgets>>,
    /// The KV-cache memory of the engine, or `None` if its size is not known. Ignored for pools,
    /// because each replica has memory of its own.
    pub kv: Option<Kv>,
}

/// The provider's rate budgets, as a scheduler uses them. Several schedulers may share them.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// The budgets, or `None` if the target was created without any.
    budgets: Option<Arc<Mutex<RateBudgets>>>,
    /// Whether the budgets limit calls now. Shared with the budgets, so that it can be read without
    /// their lock.
    limits: Arc<AtomicBool>,
}

impl Budgets {
    pub(super) fn new(budgets: Arc<Mutex<RateBudgets>>) -> Self {
        let limits = budgets.lock().limits_flag();
        Self { budgets: Some(budgets), limits }
    }

    /// Locks the budgets. Returns `None` if the target was created without rate budgets.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, RateBudgets>> {
        self.budgets.as_ref().map(|budgets| budgets.lock())
    }

    /// Returns `true` if a budget limits calls now. The headers of a response may add a budget
    /// later.
    pub(super) fn is_limiting(&self) -> bool {
        self.limits.load(Ordering::Acquire)
    }

    /// Locks the budgets. Returns `None` if there are none or if they do not limit calls now.
    fn limiting(&self) -> Option<MutexGuard<'_, RateBudgets>> {
        if self.is_limiting() { self.lock() } else { None }
    }

    /// Returns the tokens that a call takes from each budget, or zeros if there are no budgets.
    pub(super) fn need(&self, demand: &Demand) -> Need {
        self.lock().map_or(Need::ZERO, |budgets| budgets.need(demand))
    }

    /// Returns the tokens that one call may take from each budget now. Unbounded if no budget
    /// limits calls.
    pub(super) fn room(&self, now: Instant) -> AvailableBudget {
        self.limiting().map_or(AvailableBudget::UNBOUNDED, |mut budgets| budgets.available(now))
    }

    /// Returns the budget that is too small for the call even when full, and the size in tokens of
    /// the largest call that it permits. Returns `None` if the call can fit into each budget.
    pub(super) fn oversize(&self, demand: &Demand) -> Option<(Rule, u64)> {
        let (kind, most) = self.limiting()?.oversize(demand)?;
        Some((kind.into(), most))
    }

    /// Returns `true` if the need exceeds a budget even when unused.
    pub(super) fn is_exceeded_by(&self, need: &Need) -> bool {
        self.limiting().is_some_and(|budgets| budgets.is_exceeded_by(need))
    }

    /// Returns the rule that delays the call for longest, and when the budgets permit the call if
    /// no other call is dispatched before. The time is `None` if it is not known, because the
    /// processes that share a budget were lost. Returns `None` if all budgets permit the call now.
    pub(super) fn lacking(&self, now: Instant, need: &Need) -> Option<(Rule, Option<Instant>)> {
        let lack = self.limiting()?.lacking(now, need)?;
        Some(match lack {
            Lack::Limit(kind, at) => (kind.into(), Some(at)),
            Lack::Share(until) => (Rule::Share, until),
        })
    }

    /// Returns where the limit comes from that the rule is about. `None` if the rule is about no
    /// rate budget.
    pub(super) fn origin(&self, rule: Rule) -> Option<LimitOrigin> {
        let kind = BudgetKind::ALL.into_iter().find(|kind| Rule::from(*kind) == rule)?;
        self.limiting()?.origin(kind)
    }

    /// Returns `true` if this process has used up a budget, so that the call does not fit now.
    pub(super) fn is_spent(&self, now: Instant, need: &Need) -> bool {
        self.limiting().is_some_and(|mut budgets| budgets.is_spent(now, need))
    }

    /// Tells what the first waiting call needs, in case that other processes share the budgets.
    pub(super) fn want(&self, now: Instant, need: &Need) {
        if let Some(mut budgets) = self.limiting() {
            budgets.want(now, need);
        }
    }

    /// Returns when the budgets permit the call if no other call is dispatched before. Returns
    /// `now` if they permit it now, and `None` if the time is not known.
    pub(super) fn ready_at(&self, now: Instant, need: &Need) -> Option<Instant> {
        self.lacking(now, need).map_or(Some(now), |(_, at)| at)
    }

    /// Returns how long the budgets take to admit `calls` calls with this need. Returns zero if no
    /// budget limits calls.
    pub(super) fn time_for(&self, calls: usize, need: &Need) -> Duration {
        self.limiting().map_or(Duration::ZERO, |budgets| budgets.time_for(calls, need))
    }
}
