//! A pool as the upstream of a scheduler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Pool;
use super::replica_slots::ReplicaSlots;
use crate::adaptive::AdaptiveView;
use crate::budget::AvailableBudget;
use crate::cooldown::{Cooldown, CooldownState, Failure, Hold};
use crate::kv::KvView;
use crate::placement::{Fault, ReplicaSet};
use crate::schedule::available::Available;
use crate::schedule::limiter::Limiter;
use crate::schedule::requirements::{CallClass, Requirements, ReservedResources};
use crate::schedule::rule::Rule;
use crate::schedule::upstream::{Admitted, Failed, LimitChange, Limits, Upstream, UpstreamSlot};
use crate::schedule::{GrantId, Ticket};
use tidegate_tokens::Demand;

impl Pool {
    fn slots(&self) -> usize {
        self.eligible_replicas()
            .map(|(_, replica)| replica.slots())
            .fold(0, usize::saturating_add)
            .min(self.cap)
    }

    fn shortage(&self, in_flight: usize) -> Option<Rule> {
        if self.is_empty() {
            return Some(if self.is_down() { Rule::Outage } else { Rule::CoolDown });
        }
        if in_flight >= self.cap {
            return Some(Rule::Slots);
        }
        let mut lack = Rule::Slots;
        for (_, replica) in self.eligible_replicas() {
            if replica.shortage()? == Rule::FirstTokens {
                lack = Rule::FirstTokens;
            }
        }
        Some(lack)
    }
}

impl Upstream for Pool {
    fn limits(&self, in_flight: usize) -> Limits {
        Limits { slots: self.slots(), shortage: self.shortage(in_flight) }
    }

    fn set_limit(&mut self, limit: usize) {
        self.cap = limit;
    }

    fn tick(&mut self, now: Instant) {
        self.replicas.iter_mut().flatten().for_each(|replica| replica.tick(now));
        self.refresh(now);
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let replicas = self.replicas.iter().flatten();
        let replicas = replicas
            .flat_map(|replica| replica.limiter.next_wake().into_iter().chain(replica.patience_ends()));
        replicas.chain(self.placement.next_wake(now)).filter(|at| *at > now).min()
    }

    fn take_limit_changes(&mut self) -> Vec<LimitChange> {
        let mut moves = Vec::new();
        for replica in self.replicas.iter_mut().flatten() {
            let moved = replica.limiter.take_limit_changes().into_iter();
            moves.extend(moved.map(|moved| (Some(replica.placed.url.clone()), moved)));
        }
        moves
    }

    fn adaptive(&self, _: Instant, _: usize) -> Option<AdaptiveView> {
        None
    }

    fn memory(&self) -> Option<KvView> {
        let views = self.replicas.iter().flatten().filter_map(ReplicaSlots::memory);
        views.reduce(|sum, view| KvView {
            capacity: sum.capacity.saturating_add(view.capacity),
            usable: sum.usable.saturating_add(view.usable),
            calls: sum.calls + view.calls,
            held: sum.held.saturating_add(view.held),
            peak: sum.peak.saturating_add(view.peak),
        })
    }

    fn limiter_of(&mut self, slot: &UpstreamSlot) -> Option<&mut Limiter> {
        self.replica_of(slot.assignment.as_deref()?).map(|replica| &mut replica.limiter)
    }

    fn is_sized(&self) -> bool {
        true
    }

    fn can_bypass(&self) -> bool {
        true
    }

    fn class(&mut self, ticket: &Ticket) -> CallClass {
        let places = self.serving(ticket.wants.as_deref(), ticket.demand.min_input());
        CallClass::new(self.classes.number(places))
    }

    fn on_enqueue(&mut self, class: CallClass) {
        class.number().into_iter().for_each(|number| self.classes.on_enqueue(number));
    }

    fn on_dequeue(&mut self, class: CallClass) {
        class.number().into_iter().for_each(|number| self.classes.on_dequeue(number));
    }

    /// The same for all replicas, whether their memory is known or not.
    fn memory_need(&self, demand: &Demand) -> u32 {
        u32::try_from(demand.input).unwrap_or(u32::MAX)
    }

    fn oversize(&self, ticket: &Ticket, needs: &Requirements) -> Option<u64> {
        let replicas = self.replicas_of(needs.class).iter().filter_map(|at| self.replica(at));
        let most = replicas.map(|replica| replica.most().unwrap_or(u64::MAX)).max()?;
        (ticket.demand.min_input() > most).then_some(most)
    }

    fn available(&mut self, in_flight: usize, shared: AvailableBudget) -> Available {
        self.measure();
        Available::new(shared, Some(Arc::new(self.by_class(in_flight, None))))
    }

    fn measure_memory(&mut self) {
        self.measure();
    }

    fn without_reserved(&self, available: Available, held: Option<usize>, in_flight: usize) -> Available {
        if held.is_none() {
            return available;
        }
        Available { replicas: Some(Arc::new(self.by_class(in_flight, held))), ..available }
    }

    fn with_free_slots(&self, available: Available, held: Option<usize>) -> Available {
        Available { replicas: Some(Arc::new(self.by_class_with_free_slots(held))), ..available }
    }

    /// Memory that is reserved or kept is available to no other call.
    fn has_memory(&self, needs: &Requirements, ticket: &Ticket, available: &Available) -> bool {
        let Some(at) = available.replicas.as_deref() else { return true };
        let (taken, forecast) = ([at.held, available.kept], self.forecast(ticket));
        let mut among = self.replicas_of(needs.class).and(at.open).iter();
        among.any(|at| {
            let free = needs.need.kv == 0 || !taken.contains(&Some(at));
            free && self.replica(at).is_some_and(|replica| replica.fits(ticket, &forecast))
        })
    }

    fn narrow(&self, held: ReservedResources, needs: &Requirements, ticket: &Ticket) -> ReservedResources {
        held.at(self.reserve(needs, ticket))
    }

    fn left_behind(&self, needs: &Requirements, ticket: &Ticket, available: &Available) -> Option<Available> {
        Some(Available { kept: self.reserve(needs, ticket), ..available.clone() })
    }

    /// A free slot may be at a replica that cannot take the call to which a slot is owed.
    fn may_lack_slots(&self, _: usize) -> bool {
        true
    }

    fn slots_for(&self, needs: &Requirements, in_flight: usize) -> Option<ReplicaSet> {
        let places = self.would_fit_at(needs, in_flight);
        (!self.has_slot_for(needs.class, in_flight) && !places.is_empty()).then_some(places)
    }

    fn is_at(&self, id: GrantId, places: ReplicaSet) -> bool {
        self.unanswered.get(&id).is_some_and(|at| places.contains(*at))
    }

    fn cooldown(&self) -> &Cooldown {
        &self.cooldown
    }

    fn cooldown_mut(&mut self) -> &mut Cooldown {
        &mut self.cooldown
    }

    fn is_open(&self) -> bool {
        !self.is_empty()
    }

    fn is_cooling(&self, _: Instant) -> bool {
        self.is_empty()
    }

    fn is_closed(&self) -> bool {
        self.cooldown.is_closed() || self.is_empty()
    }

    fn has_no_replica(&self) -> bool {
        self.is_empty()
    }

    fn closed(&self, now: Instant) -> Duration {
        self.closed + self.closed_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn closed_since(&self) -> Option<Instant> {
        self.seen_closed.since()
    }

    fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.placement.next_wake(now).filter(|_| self.is_empty())
    }

    /// Unless a replica asked callers to wait.
    fn is_down(&self) -> bool {
        !self.replicas.iter().flatten().any(|replica| replica.is_full)
    }

    fn state(&self, _: Instant) -> CooldownState {
        if self.is_empty() { CooldownState::Cooling } else { CooldownState::Open }
    }

    fn resume_cooldown(&mut self, now: Instant, until: Instant) {
        self.cooldown.resume(now, until);
    }

    fn admit(&mut self, now: Instant, admitted: Admitted<'_>) -> UpstreamSlot {
        let assigned = self.assign(now, &admitted);
        let (assignment, tracked) =
            assigned.map_or((None, None), |(assignment, tracked)| (Some(Box::new(assignment)), tracked));
        let slots_bind = self.shortage(admitted.in_flight).is_some();
        let attempt = self.cooldown.admit(now, admitted.ticket.has_failed, slots_bind);
        UpstreamSlot { attempt, tracked, memory: None, assignment }
    }

    fn on_answer(&mut self, id: GrantId) {
        self.settled(id);
    }

    fn on_first_token(&mut self, now: Instant, slot: &mut UpstreamSlot) {
        if let Some(assignment) = &mut slot.assignment
            && std::mem::take(&mut assignment.awaits)
        {
            self.placement.on_first_token(now, &mut assignment.placed_call);
        }
    }

    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot) {
        if let Some(assignment) = &mut slot.assignment {
            self.succeeded(now, assignment);
        }
    }

    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> Hold {
        let Failed { call, failure, delay, jitter } = failed;
        let Some(assignment) = &slot.assignment else {
            return self.cooldown.on_failure(now, call, failure, slot.attempt, delay, jitter);
        };
        let unread = matches!(failure, Failure::Unread { .. });
        self.failed(now, assignment, if unread { Fault::Full(delay) } else { Fault::Broke }, slot.attempt)
    }

    fn release(&mut self, now: Instant, id: GrantId, slot: UpstreamSlot) -> bool {
        let Some(assignment) = slot.assignment else { return false };
        self.leave(now, id, *assignment);
        // A drained replica leaves its index to members that had none.
        let Some(members) = self.placement.take_pending() else { return false };
        self.tick(now);
        self.set_members(now, &members);
        true
    }

    fn as_pool(&self) -> Option<&Pool> {
        Some(self)
    }

    fn as_pool_mut(&mut self) -> Option<&mut Pool> {
        Some(self)
    }
}
