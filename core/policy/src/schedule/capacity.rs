//! What calls compete for: the upstream's slots and memory, and the provider's budgets. Tracks who
//! holds slots, and since when something has been short.
//!
//! # Invariants
//!
//! - The calls in flight, in total and by lane, are those admitted and not yet ended.
//! - `limits` is what the upstream returns for the calls in flight.

use std::time::Instant;

use super::available::Available;
use super::budgets::{Budgets, Resources};
use super::explain::{BlockedSince, SIZES};
use super::lanes::Slots;
use super::limiter::{Limiter, Tracked};
use super::pool::Pool;
use super::requirements::{CallClass, Requirements};
use super::rule::Rule;
use super::select::HeadReservation;
use super::settings::Settings;
use super::single::SingleUpstream;
use super::upstream::{Admitted, Failed, Limits, Upstream, UpstreamSlot};
use super::{GrantId, Ticket};
use crate::Lane;
use crate::adaptive::Ended;
use crate::budget::{AvailableBudget, Charge, Need};
use crate::cooldown;
use crate::placement::ReplicaSet;
use tidegate_config::TenantConfig;

/// Slots, budgets and memory. See [the module](self).
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) upstream: Box<dyn Upstream>,
    pub(super) budgets: Budgets,
    pub(super) blocked: BlockedSince,
    /// Whether tenants have token budgets of their own, which the queue accounts for.
    has_tenant_tokens: bool,
    /// Whether calls can differ in what they lack even without rate budgets.
    is_sized: bool,
    pub(super) in_flight: usize,
    by_lane: [usize; 3],
    /// The maximum number of calls that were in flight at once.
    pub(super) peak: usize,
    /// The number of calls admitted so far.
    pub(super) grants: u64,
    pub(super) last_grant: Option<Instant>,
    /// The upstream's limits, cached because every decision reads them.
    limits: Limits,
}

impl Capacity {
    pub(super) fn new(settings: &Settings, resources: Option<Resources>, now: Instant) -> Self {
        let (budgets, memory) = match resources {
            Some(Resources { budgets, kv }) => (Budgets::new(budgets), kv),
            None => (Budgets::default(), None),
        };
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
            blocked: BlockedSince::default(),
            has_tenant_tokens,
            in_flight: 0,
            by_lane: [0; 3],
            peak: 0,
            grants: 0,
            last_grant: None,
        }
    }

    /// Returns the slots in force. For a pool, the slots of the replicas that accept calls, within
    /// the target's cap.
    pub(super) fn slots(&self) -> usize {
        self.limits.slots
    }

    /// Returns what leaves no room for any other call.
    pub(super) fn shortage(&self) -> Option<Rule> {
        self.limits.shortage
    }

    pub(super) fn has_slot(&self) -> bool {
        self.limits.shortage.is_none()
    }

    pub(super) fn in_flight_of(&self, lane: Lane) -> usize {
        self.by_lane[lane as usize]
    }

    pub(super) fn slot_use(&self) -> Slots {
        Slots { in_force: self.limits.slots, in_flight: self.in_flight, by_lane: self.by_lane }
    }

    /// Returns `true` if calls can differ in what they lack. Otherwise only the first call needs to
    /// be looked at.
    pub(super) fn is_sized(&self) -> bool {
        self.is_sized || self.budgets.is_limiting()
    }

    /// Returns `true` if time alone may give calls the tokens that they lack.
    pub(super) fn has_rates(&self) -> bool {
        self.has_tenant_tokens || self.budgets.is_limiting()
    }

    /// Returns what a call requires.
    pub(super) fn needs(&mut self, ticket: &Ticket) -> Requirements {
        let has_failed = ticket.has_failed;
        if !self.is_sized && self.budgets.is_none() {
            return Requirements { has_failed, ..Requirements::default() };
        }
        let tenant_tokens = u32::try_from(ticket.demand.total()).unwrap_or(u32::MAX);
        let need =
            Need { kv: self.upstream.memory_need(&ticket.demand), ..self.budgets.need(&ticket.demand) };
        Requirements { need, tenant_tokens, class: self.upstream.class(ticket), has_failed }
    }

    /// Returns the rule that the call can never satisfy, and the maximum of that rule in tokens.
    pub(super) fn oversize(&self, ticket: &Ticket, needs: &Requirements) -> Option<(Rule, u64)> {
        let most = self.upstream.oversize(ticket, needs).map(|most| (Rule::Kv, most));
        most.or_else(|| self.budgets.oversize(&ticket.demand))
    }

    /// Measures what is available now.
    pub(super) fn available(&mut self, now: Instant) -> Available {
        let available = self.upstream.available(self.in_flight, self.budgets.room(now));
        Available { unfailed_only: self.upstream.ready(now, true).is_err(), ..available }
    }

    /// Returns what is left beside the reservation.
    pub(super) fn less_reserved(
        &self,
        mut available: Available,
        reservation: Option<&HeadReservation>,
    ) -> Available {
        let Some(HeadReservation { resources: held, .. }) = reservation else { return available };
        available.shared = held.leave(available.shared);
        self.upstream.without_reserved(available, held.at, self.in_flight)
    }

    /// Returns `true` if a call fits into what is available. Exact.
    pub(super) fn fits(&self, needs: &Requirements, ticket: &Ticket, available: &Available) -> bool {
        available.fit(needs) && self.upstream.has_memory(needs, ticket, available)
    }

    /// Returns what a call lacks, and when time alone will provide it, if it does.
    pub(super) fn lacking(
        &self,
        now: Instant,
        needs: &Requirements,
        ticket: &Ticket,
        available: &Available,
    ) -> Option<(Rule, Option<Instant>)> {
        if available.of(needs).is_none() {
            return Some((Rule::Replicas, None));
        }
        if !self.upstream.has_memory(needs, ticket, available) {
            return Some((Rule::Kv, None));
        }
        self.budgets.lacking(now, &needs.need).map(|(rule, at)| (rule, Some(at)))
    }

    /// Returns when the budgets have room for a call if no other call goes. `None` if memory is
    /// missing, which time alone does not provide.
    pub(super) fn ready_at(&self, now: Instant, need: &Need, room: &AvailableBudget) -> Option<Instant> {
        (need.kv <= room.max_need.kv).then(|| self.budgets.ready_at(now, need))
    }

    /// Returns the rule that keeps the upstream closed: an outage or a cool-down.
    pub(super) fn closed_rule(&self) -> Rule {
        if self.upstream.is_down() { Rule::Outage } else { Rule::CoolDown }
    }

    /// Sets a fixed number of slots. Slots held above it retire as their calls end.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.upstream.set_limit(limit);
        self.measure();
    }

    /// Lets time pass at the upstream, which may make room for a call.
    pub(super) fn tick(&mut self, now: Instant) {
        self.upstream.tick(now);
        self.follow(now);
    }

    /// Gives a call a slot and charges the budgets. `reserved` are the replicas whose memory is
    /// kept for others.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        ticket: &Ticket,
        class: CallClass,
        reserved: ReplicaSet,
    ) -> (GrantId, UpstreamSlot, Option<Box<Charge>>) {
        self.in_flight += 1;
        self.by_lane[ticket.lane as usize] += 1;
        self.peak = self.peak.max(self.in_flight);
        self.grants += 1;
        self.last_grant = Some(now);
        let id = GrantId::new(self.grants);
        let admitted = Admitted { id, ticket, class, in_flight: self.in_flight, reserved };
        let slot = self.upstream.admit(now, admitted);
        self.update(now);
        (id, slot, self.budgets.charge(now, &ticket.demand))
    }

    /// Reports the first token to the limit.
    pub(super) fn on_first_token(&mut self, now: Instant, slot: &mut UpstreamSlot) {
        self.report(now, slot, |limiter, tracked| limiter.on_first_token(now, tracked));
    }

    /// Reports to the limit that the first token cannot be observed. The answer is expected to have
    /// `output` tokens.
    pub(super) fn on_unobservable(&mut self, now: Instant, slot: &mut UpstreamSlot, output: u64) {
        self.report(now, slot, |limiter, tracked| limiter.on_unobservable(now, tracked, output));
    }

    fn report(
        &mut self,
        now: Instant,
        slot: &mut UpstreamSlot,
        event: impl FnOnce(&mut Limiter, &mut Tracked),
    ) {
        let Some(mut tracked) = slot.tracked.take() else { return };
        if let Some(limiter) = self.upstream.limiter_of(slot) {
            event(limiter, &mut tracked);
        }
        slot.tracked = Some(tracked);
        self.update(now);
    }

    /// Handles an attempt that the upstream accepted.
    pub(super) fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot) {
        self.upstream.on_success(now, slot);
        self.follow(now);
    }

    /// Handles an attempt that the upstream failed.
    pub(super) fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> cooldown::Hold {
        let reservation = self.upstream.on_failure(now, slot, failed);
        self.follow(now);
        reservation
    }

    /// Ends an attempt: reports its outcome to the limit and stops counting its slot.
    /// [`Capacity::release`] has to follow.
    pub(super) fn end(&mut self, now: Instant, lane: Lane, slot: &mut UpstreamSlot, how: Ended) {
        self.in_flight -= 1;
        self.by_lane[lane as usize] -= 1;
        if let Some(tracked) = slot.tracked.take() {
            if let Some(limiter) = self.upstream.limiter_of(slot) {
                limiter.on_end(now, tracked, how);
            }
            self.measure();
        }
    }

    /// Releases what an ended attempt held. Returns `true` if the set of replicas changed.
    pub(super) fn release(&mut self, now: Instant, id: GrantId, slot: UpstreamSlot) -> bool {
        let have_changed = self.upstream.release(now, id, slot);
        self.update(now);
        have_changed
    }

    /// Runs an operation of the pool if the upstream is one.
    pub(super) fn with_pool<T>(&mut self, operation: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let result = operation(self.upstream.as_pool_mut()?);
        self.measure();
        Some(result)
    }

    /// Records since when slots or first tokens have been short.
    pub(super) fn update(&mut self, now: Instant) {
        self.measure();
        for rule in [Rule::Slots, Rule::FirstTokens] {
            self.blocked.set(now, rule, self.limits.shortage == Some(rule));
        }
    }

    /// Records what the front lacks if no call can go although slots are free.
    pub(super) fn note_lack(&mut self, now: Instant, lack: Option<Rule>, is_held: bool) {
        for rule in SIZES {
            self.blocked.set(now, rule, lack == Some(rule));
        }
        self.blocked.set(now, Rule::Held, is_held);
    }

    /// Reads the limits again, and records the change if what is short has changed.
    fn follow(&mut self, now: Instant) {
        let before = self.limits.shortage;
        self.measure();
        if before != self.limits.shortage {
            self.update(now);
        }
    }

    fn measure(&mut self) {
        self.limits = self.upstream.limits(self.in_flight);
    }
}
