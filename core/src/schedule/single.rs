//! A single server as the upstream: one limit, one memory, one cool-down.

use std::time::{Duration, Instant};

use super::available::Available;
use super::limiter::Limiter;
use super::requirements::{CallClass, Requirements, ReservedResources};
use super::rule::Rule;
use super::settings::Settings;
use super::span::Span;
use super::upstream::{Admitted, Failed, LimitChange, Limits, MemoryUse, Upstream, UpstreamSlot};
use super::{GrantId, Ticket};
use crate::adaptive::AdaptiveView;
use crate::budget::Room;
use crate::cooldown::{Attempt, Cooldown, Hold, State};
use crate::estimate::Demand;
use crate::kv::{self, Kv, Prefix};
use crate::placement::ReplicaSet;

/// A single server. See [the module](self).
#[derive(Debug)]
pub(super) struct SingleUpstream {
    limiter: Limiter,
    /// The engine's memory, if its size is known.
    memory: Option<Kv>,
    cooldown: Cooldown,
    /// When events showed the cool-down to be in force.
    closed: Span,
}

impl SingleUpstream {
    pub(super) fn new(settings: &Settings, memory: Option<Kv>, now: Instant) -> Self {
        Self {
            limiter: Limiter::new(settings.limit, settings.adaptive.as_ref(), now),
            memory,
            cooldown: Cooldown::default(),
            closed: Span::default(),
        }
    }

    fn note_closed(&mut self, now: Instant) {
        self.closed.set(now, self.cooldown.is_closed());
    }
}

impl Upstream for SingleUpstream {
    fn limits(&self, in_flight: usize) -> Limits {
        Limits { slots: self.limiter.slots(), shortage: self.limiter.shortage(in_flight) }
    }

    fn set_limit(&mut self, limit: usize) {
        self.limiter = Limiter::fixed(limit);
    }

    fn tick(&mut self, now: Instant) {
        self.limiter.tick(now);
    }

    fn next_wake(&self, _: Instant) -> Option<Instant> {
        self.limiter.next_wake()
    }

    fn take_limit_changes(&mut self) -> Vec<LimitChange> {
        self.limiter.take_limit_changes().into_iter().map(|moved| (None, moved)).collect()
    }

    fn adaptive(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView> {
        self.limiter.view(now, in_flight)
    }

    fn memory(&self) -> Option<kv::View> {
        self.memory.as_ref().map(Kv::view)
    }

    fn limiter_of(&mut self, _: &UpstreamSlot) -> Option<&mut Limiter> {
        Some(&mut self.limiter)
    }

    fn is_sized(&self) -> bool {
        self.memory.is_some()
    }

    fn can_bypass(&self) -> bool {
        false
    }

    fn class(&mut self, _: &Ticket) -> CallClass {
        CallClass::default()
    }

    fn on_enqueue(&mut self, _: CallClass) {}

    fn on_dequeue(&mut self, _: CallClass) {}

    fn memory_need(&self, demand: &Demand) -> u32 {
        self.memory.as_ref().map_or(0, |memory| memory.need(demand))
    }

    fn oversize(&self, ticket: &Ticket, _: &Requirements) -> Option<u64> {
        // The output is uncertain, and an engine cuts an answer that becomes too long.
        let most = self.memory.as_ref()?.most();
        (ticket.demand.least_input() > most).then_some(most)
    }

    fn available(&mut self, _: usize, mut shared: Room) -> Available {
        if let Some(memory) = &mut self.memory {
            shared.most.kv = memory.room();
        }
        Available::new(shared, None)
    }

    fn without_reserved(&self, available: Available, _: Option<usize>, _: usize) -> Available {
        available
    }

    fn with_free_slots(&self, available: Available, _: Option<usize>) -> Available {
        available
    }

    fn has_memory(&self, _: &Requirements, ticket: &Ticket, _: &Available) -> bool {
        let fits = |memory: &Kv| memory.fits(&ticket.demand, &ticket.forecast, &Prefix::default());
        self.memory.as_ref().is_none_or(fits)
    }

    fn narrow(&self, held: ReservedResources, _: &Requirements, _: &Ticket) -> ReservedResources {
        held
    }

    fn left_behind(&self, _: &Requirements, _: &Ticket, _: &Available) -> Option<Available> {
        None
    }

    fn may_lack_slots(&self, in_flight: usize) -> bool {
        // Above a lowered limit, the end of a call frees no slot.
        self.limiter.shortage(in_flight) == Some(Rule::Slots) && in_flight <= self.limiter.slots()
    }

    fn slots_for(&self, _: &Requirements, _: usize) -> Option<ReplicaSet> {
        Some(ReplicaSet::NONE)
    }

    fn is_at(&self, _: GrantId, _: ReplicaSet) -> bool {
        true
    }

    fn ready(&mut self, now: Instant, has_failed: bool) -> Result<(), Instant> {
        self.cooldown.ready(now, self.limiter.slots(), has_failed)
    }

    fn is_probing(&self) -> bool {
        self.cooldown.is_probing()
    }

    fn is_open(&self) -> bool {
        self.cooldown.state() == State::Open
    }

    fn is_cooling(&self, now: Instant) -> bool {
        self.cooldown.until().is_some_and(|until| until > now)
    }

    fn is_closed(&self) -> bool {
        self.cooldown.is_closed()
    }

    fn has_no_replica(&self) -> bool {
        false
    }

    fn closed(&self, now: Instant) -> Duration {
        self.cooldown.closed(now)
    }

    fn closed_since(&self) -> Option<Instant> {
        self.closed.since()
    }

    fn cooling_until(&self) -> Option<Instant> {
        self.cooldown.until()
    }

    fn closed_until(&self, _: Instant) -> Option<Instant> {
        self.cooldown.until()
    }

    fn is_down(&self) -> bool {
        self.cooldown.is_down()
    }

    fn state(&self, now: Instant) -> State {
        self.cooldown.shown(now)
    }

    fn resume_cooldown(&mut self, now: Instant, until: Instant) {
        self.cooldown.resume(now, until);
        self.note_closed(now);
    }

    fn admit(&mut self, now: Instant, admitted: Admitted<'_>) -> UpstreamSlot {
        let Admitted { ticket, in_flight, .. } = admitted;
        let tracked = self.limiter.on_sent(now, ticket);
        let slots_bind = self.limiter.shortage(in_flight).is_some();
        let memory = self.memory.as_mut();
        UpstreamSlot {
            attempt: self.cooldown.admit(now, ticket.has_failed, slots_bind),
            tracked,
            memory: memory.map(|memory| Box::new(MemoryUse::take(memory, ticket, Prefix::default()))),
            assignment: None,
        }
    }

    fn on_answer(&mut self, _: GrantId) {}

    fn on_first_token(&mut self, _: Instant, _: &mut UpstreamSlot) {}

    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot) {
        self.cooldown.succeeded(now, slot.attempt, self.limiter.slots());
        self.note_closed(now);
    }

    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> Hold {
        let Failed { call, failure, delay, jitter } = failed;
        let hold = self.cooldown.failed(now, call, failure, slot.attempt, delay, jitter);
        self.note_closed(now);
        hold
    }

    fn on_inconclusive(&mut self, attempt: Attempt) {
        self.cooldown.inconclusive(attempt);
    }

    fn release(&mut self, _: Instant, _: GrantId, slot: UpstreamSlot) -> bool {
        if let (Some(memory), Some(taken)) = (&mut self.memory, slot.memory) {
            memory.release(taken.place);
        }
        false
    }
}
