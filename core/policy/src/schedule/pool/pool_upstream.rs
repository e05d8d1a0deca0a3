//! The implementation of [`Upstream`] for a pool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Assignment, Pool, replica_slots::ReplicaSlots};
use crate::cooldown::{Cooldown, CooldownState, Failure};
use crate::placement::{Fault, ReplicaSet};
use crate::retry::RetryPath;
use crate::schedule::{
    Admitted, Available, CallClass, Candidate, Failed, GrantId, LimitChange, Limiter, Limits, LongestPrompt,
    ReplicaAvailability, Requirements, Rule, Ticket, Upstream, UpstreamLoad, UpstreamSlot,
};
use crate::{adaptive::AdaptiveView, budget::AvailableBudget, kv::KvView};
use tidegate_tokens::Demand;

impl Pool {
    /// Returns the rule that keeps any further call from being sent while `in_flight` calls are in
    /// flight in the pool. Returns `None` if the pool's cap is not reached and an eligible replica
    /// has a free slot.
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
        let slots = self.eligible_replicas().map(|(_, replica)| replica.slots());
        let slots = slots.fold(0, usize::saturating_add).min(self.cap);
        Limits { slots, shortage: self.shortage(in_flight) }
    }

    fn load(&self) -> UpstreamLoad {
        let none = UpstreamLoad { first_tokens: 0.0, has_first_token_room: false, reachable_slots: 0 };
        self.eligible_replicas().fold(none, |sum, (_, replica)| {
            let one = replica.limiter.load();
            UpstreamLoad {
                first_tokens: sum.first_tokens + one.first_tokens,
                has_first_token_room: sum.has_first_token_room || one.has_first_token_room,
                reachable_slots: sum.reachable_slots.saturating_add(one.reachable_slots).min(self.cap),
            }
        })
    }

    fn calls_in_memory(&self) -> usize {
        let calls = self.eligible_replicas().map(|(_, replica)| replica.calls_in_memory());
        calls.fold(0, usize::saturating_add)
    }

    fn keep_free(&mut self, spare: usize) {
        let replicas = self.eligible.iter().count().max(1);
        self.replicas.iter_mut().flatten().for_each(|replica| replica.limiter.keep_free(spare / replicas));
    }

    fn set_limit(&mut self, limit: usize) {
        self.cap = limit;
    }

    fn tick(&mut self, now: Instant) -> bool {
        self.replicas.iter_mut().flatten().for_each(|replica| replica.tick(now));
        self.refresh(now);
        true
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let replicas = self.replicas.iter().flatten();
        let replicas = replicas
            .flat_map(|replica| replica.limiter.next_wake.into_iter().chain(replica.probe_accepted_at()));
        replicas.chain(self.placement.next_wake(now)).filter(|at| *at > now).min()
    }

    fn take_limit_changes(&mut self) -> Vec<LimitChange> {
        let mut changes = Vec::new();
        for ReplicaSlots { placed, limiter, .. } in self.replicas.iter_mut().flatten() {
            changes.extend(limiter.changes.drain(..).map(|change| (Some(placed.url.clone()), change)));
        }
        changes
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

    fn limiter_of(&mut self, assignment: Option<&Assignment>) -> Option<&mut Limiter> {
        self.replica_of(assignment?).map(|replica| &mut replica.limiter)
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

    fn waiting_mut(&mut self, class: CallClass) -> Option<&mut usize> {
        self.classes.waiting_mut(class)
    }

    /// Returns the input of the call in tokens, whether or not the memory sizes of the replicas are
    /// known.
    fn memory_need(&self, demand: &Demand) -> u32 {
        u32::try_from(demand.input).unwrap_or(u32::MAX)
    }

    fn oversize(&self, call: &Candidate<'_>) -> Option<u64> {
        let replicas = self.replicas_of(call.needs.class).iter().filter_map(|at| self.replica(at));
        let most = replicas.map(|replica| replica.most().unwrap_or(u64::MAX)).max()?;
        (call.ticket.demand.min_input() > most).then_some(most)
    }

    fn available(&mut self, in_flight: usize, shared: AvailableBudget) -> Available {
        self.measure_memory();
        Available::new(shared, self.replicas(Some(in_flight), None))
    }

    fn measure_memory(&mut self) {
        self.replicas.iter_mut().flatten().for_each(ReplicaSlots::measure);
    }

    fn replicas(&self, in_flight: Option<usize>, held: Option<usize>) -> Option<Arc<ReplicaAvailability>> {
        let open = in_flight.map_or(self.eligible, |in_flight| self.with_free_slot(in_flight));
        let longest = |at| Some((at, if held == Some(at) { 0 } else { self.replica(at)?.longest }));
        let most =
            |replicas: ReplicaSet| LongestPrompt::max_of(replicas.and(open).iter().filter_map(longest));
        let classes = self.classes.iter().map(|replicas| most(replicas?));
        Some(Arc::new(ReplicaAvailability::new(open, held, classes)))
    }

    /// Returns `true` if a replica has memory for the call. The memory of a replica that is
    /// reserved or kept for another call counts as used.
    fn has_memory(&self, call: &Candidate<'_>, available: &Available) -> bool {
        let Candidate { ticket, needs, .. } = call;
        let Some(at) = available.replicas.as_deref() else { return true };
        let (taken, forecast) = ([at.held, available.kept], self.forecast(ticket));
        let mut among = self.replicas_of(needs.class).and(at.open).iter();
        among.any(|at| {
            let free = needs.need.kv == 0 || !taken.contains(&Some(at));
            free && self.replica(at).is_some_and(|replica| replica.fits(ticket, &forecast))
        })
    }

    fn replica_to_reserve(&self, call: &Candidate<'_>) -> Option<usize> {
        let Candidate { ticket, needs, .. } = call;
        let forecast = self.forecast(ticket);
        let could =
            |replica: &&ReplicaSlots| replica.most().is_none_or(|most| u64::from(needs.need.kv) <= most);
        let replicas = self.eligible_of(needs.class).iter().filter_map(|at| {
            let replica = self.replica(at).filter(could)?;
            Some((at, replica.slack(ticket, &forecast)))
        });
        let nearest = replicas
            .max_by(|(at, slack), (other, of_other)| slack.total_cmp(of_other).then(other.cmp(at)))?;
        Some(nearest).filter(|(_, slack)| *slack < 0.0).map(|(at, _)| at)
    }

    /// Always returns `true`: even while slots are free at some replicas, a waiting call may lack a
    /// slot at the replicas that may take it.
    fn may_lack_slots(&self, _: usize) -> bool {
        true
    }

    fn slots_for(&self, needs: &Requirements, in_flight: usize) -> Option<ReplicaSet> {
        let eligible = self.eligible_of(needs.class);
        if in_flight > self.cap || !eligible.and(self.with_free_slot(in_flight)).is_empty() {
            return None;
        }
        // A slot that is released at a full replica, or at one with more calls than slots, is used
        // by no call.
        let fits = |replica: &ReplicaSlots| {
            replica.in_flight <= replica.slots() && !replica.is_full && needs.need.kv <= replica.longest
        };
        let replicas: ReplicaSet = eligible.iter().filter(|at| self.replica(*at).is_some_and(fits)).collect();
        (!replicas.is_empty()).then_some(replicas)
    }

    fn is_at(&self, id: GrantId, replicas: ReplicaSet) -> bool {
        self.unanswered.get(&id).is_some_and(|at| replicas.contains(*at))
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

    /// Always `true`: a pool that is closed has no replica that accepts calls.
    fn is_unavailable(&self) -> bool {
        true
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
        self.placement.returns_at(now).filter(|_| self.is_empty())
    }

    /// Returns `true` if no replica counts as full. Returns `false` if the last known answer of a
    /// replica was a rejection as full or as over a rate limit. If no replica is eligible, this
    /// decides whether the pool has an outage (`true`) or cools down.
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
        let (assignment, tracked, memory) = match self.assign(now, &admitted) {
            Some((assignment, tracked, memory)) => (Some(assignment), tracked, Some(memory)),
            None => (None, None, None),
        };
        let slots_bind = self.shortage(admitted.in_flight).is_some();
        let attempt =
            self.cooldown.admit(now, admitted.call.ticket.has_failed, admitted.in_flight, slots_bind);
        UpstreamSlot { attempt, tracked, memory: memory.map(Box::new), assignment: assignment.map(Box::new) }
    }

    fn on_response_head(&mut self, id: GrantId) {
        self.remove_unanswered(id);
    }

    fn on_first_token(&mut self, now: Instant, slot: &mut UpstreamSlot) {
        if let Some(assignment) = &mut slot.assignment
            && std::mem::take(&mut assignment.awaits)
        {
            self.placement.on_first_token(now, &mut assignment.placed_call);
        }
    }

    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot) -> bool {
        let was_open = self.is_open();
        if let Some(assignment) = &mut slot.assignment {
            self.on_accepted(now, assignment);
        }
        was_open
    }

    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> RetryPath {
        let Failed { call, failure, delay, jitter } = failed;
        let Some(assignment) = &slot.assignment else {
            return self.cooldown.on_failure(now, call, failure, slot.attempt, delay, jitter);
        };
        let unread = matches!(failure, Failure::Unread { .. });
        self.on_failed(now, assignment, if unread { Fault::Full(delay) } else { Fault::Broke }, slot.attempt)
    }

    fn release(&mut self, now: Instant, id: GrantId, slot: &mut UpstreamSlot) -> bool {
        let Some(assignment) = slot.assignment.take() else { return false };
        self.remove_unanswered(id);
        if let Some(replica) = self.replica_of(&assignment) {
            replica.on_end(assignment.probe_since);
            slot.memory.take().into_iter().for_each(|memory| replica.release(*memory));
        }
        if let Some(left) = self.placement.on_ended(assignment.placed_call)
            && let Some(replica) = self.replicas.get_mut(left)
        {
            *replica = None;
        }
        self.refresh(now);
        // A drained replica leaves its index to members that had none.
        let Some(members) = self.placement.take_pending() else { return false };
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
