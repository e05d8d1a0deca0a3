//! A single server as the upstream: one limit, one memory, one cool-down.

use std::time::{Duration, Instant};

use super::{
    Admitted, Assignment, Available, Candidate, Failed, GrantId, LimitChange, Limiter, Limits, MemoryUse,
    Rule, Scheduler, SchedulerSettings, Span, Ticket, Upstream, UpstreamLoad, UpstreamSlot,
};
use crate::cooldown::Cooldown;
use crate::kv::{Kv, KvView, Prefix};
use crate::retry::RetryPath;
use crate::{adaptive::AdaptiveView, budget::AvailableBudget, saturate};
use tidegate_protocol::vllm::EngineMetrics;
use tidegate_tokens::Demand;

/// The age at which what the engine reports about its memory is out of date: the metrics are polled
/// every second.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// A single server as the upstream. See [the module](self).
#[derive(Debug)]
pub(super) struct SingleUpstream {
    limiter: Limiter,
    /// The KV-cache memory of the engine, or `None` if its size is not known.
    memory: Option<Kv>,
    /// When the engine last reported how much of its memory is in use. `None` if it has not, or if
    /// the report is out of date.
    reported_at: Option<Instant>,
    /// The share of the memory to keep free (0 to 1) if the engine reports its size. `None` if the
    /// size is configured, so that reports are ignored.
    reported_headroom: Option<f64>,
    cooldown: Cooldown,
    /// Whether calls with several credentials or models use the server. See
    /// [`Scheduler::set_several_keys`].
    has_several_keys: bool,
    /// The latest span of time in which the server was closed (cooling down or being probed), as of
    /// the last event.
    closed: Span,
}

impl SingleUpstream {
    pub(super) fn new(settings: &SchedulerSettings, memory: Option<Kv>, now: Instant) -> Self {
        Self {
            limiter: Limiter::new(settings.limit, settings.adaptive.as_ref(), now),
            reported_headroom: memory.is_none().then_some(settings.kv_headroom),
            memory,
            reported_at: None,
            cooldown: Cooldown::default(),
            has_several_keys: false,
            closed: Span::default(),
        }
    }

    /// Returns the number of slots in force. An adaptive limit reacts to rejected calls itself.
    fn slots(&self) -> usize {
        let slots = self.limiter.slots;
        if self.limiter.is_fixed() { self.cooldown.slots(slots) } else { slots }
    }

    /// Records in `closed` whether the server is closed now, that is, cooling down or being probed.
    fn note_closed(&mut self, now: Instant) {
        self.closed.set(now, self.cooldown.is_closed());
    }
}

impl Upstream for SingleUpstream {
    fn limits(&self, in_flight: usize) -> Limits {
        let slots = self.slots();
        let shortage = if in_flight >= slots { Some(Rule::Slots) } else { self.limiter.shortage(in_flight) };
        Limits { slots, shortage }
    }

    fn load(&self) -> UpstreamLoad {
        self.limiter.load()
    }

    fn calls_in_memory(&self) -> usize {
        self.memory.as_ref().and_then(Kv::max_calls).unwrap_or(usize::MAX)
    }

    fn keep_free(&mut self, spare: usize) {
        self.limiter.keep_free(spare);
    }

    fn set_limit(&mut self, limit: usize) {
        self.limiter = Limiter::fixed(limit);
    }

    fn tick(&mut self, now: Instant) -> bool {
        let has_moved = self.limiter.tick(now);
        let is_stale = |at: &mut Instant| now.saturating_duration_since(*at) > STALE_AFTER;
        if self.reported_at.take_if(is_stale).is_some()
            && let Some(memory) = &mut self.memory
        {
            memory.forget_report();
            return true;
        }
        has_moved
    }

    fn next_wake(&self, _: Instant) -> Option<Instant> {
        self.limiter.next_wake
    }

    fn take_limit_changes(&mut self) -> Vec<LimitChange> {
        self.limiter.changes.drain(..).map(|change| (None, change)).collect()
    }

    fn adaptive(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView> {
        self.limiter.view(now, in_flight)
    }

    fn memory(&self) -> Option<KvView> {
        self.memory.as_ref().map(Kv::view)
    }

    fn on_engine_metrics(&mut self, now: Instant, metrics: &EngineMetrics) {
        self.limiter.on_engine_metrics(now, metrics);
        let (Some(headroom), Some(tokens)) = (self.reported_headroom, metrics.kv_tokens) else { return };
        let memory = self.memory.get_or_insert_with(|| Kv::new(tokens, headroom));
        if memory.capacity() != tokens {
            memory.resize(tokens, headroom);
        }
        if let Some(usage) = metrics.kv_usage {
            memory.calibrate((usage * tokens as f64) as u64, metrics.waiting >= 1.0);
            self.reported_at = Some(now);
        }
    }

    fn limiter_of(&mut self, _: Option<&Assignment>) -> Option<&mut Limiter> {
        Some(&mut self.limiter)
    }

    fn awaiting(&self) -> usize {
        self.limiter.awaiting
    }

    fn is_sized(&self) -> bool {
        self.memory.is_some()
    }

    fn memory_need(&self, demand: &Demand) -> u32 {
        self.memory.as_ref().map_or(0, |memory| memory.need(demand))
    }

    fn oversize(&self, call: &Candidate<'_>) -> Option<u64> {
        // The output is uncertain, and an engine cuts an answer that becomes too long.
        let most = self.memory.as_ref()?.capacity();
        (call.ticket.demand.min_input() > most).then_some(most)
    }

    fn max_memory_need(&self) -> u32 {
        self.memory.as_ref().map_or(u32::MAX, |memory| saturate(memory.capacity()))
    }

    fn available(&mut self, _: usize, mut shared: AvailableBudget) -> Available {
        if let Some(memory) = &mut self.memory {
            shared.max_need.kv = memory.available();
        }
        Available::new(shared, None)
    }

    fn has_memory(&self, call: &Candidate<'_>, _: &Available) -> bool {
        let Ticket { demand, forecast, .. } = call.ticket;
        let fits = |memory: &Kv| memory.fits(demand, forecast, &Prefix::default());
        self.memory.as_ref().is_none_or(fits)
    }

    fn may_lack_slots(&self, in_flight: usize) -> bool {
        // Above a lowered limit, the end of a call frees no slot.
        in_flight == self.slots()
    }

    fn cooldown(&self) -> &Cooldown {
        &self.cooldown
    }

    fn cooldown_mut(&mut self) -> &mut Cooldown {
        &mut self.cooldown
    }

    fn set_has_slot(&mut self, now: Instant, has_slot: bool) {
        self.cooldown.set_has_slot(now, has_slot);
        self.note_closed(now);
    }

    fn closed_since(&self) -> Option<Instant> {
        self.closed.since()
    }

    fn resume_cooldown(&mut self, now: Instant, until: Instant) {
        if !self.has_several_keys {
            self.cooldown.resume(now, until);
            self.note_closed(now);
        }
    }

    fn set_several_keys(&mut self, is_several: bool) {
        self.has_several_keys = is_several;
    }

    fn end_retry_after(&mut self, now: Instant) {
        self.cooldown.end_retry_after(now);
        self.note_closed(now);
    }

    fn admit(&mut self, now: Instant, admitted: Admitted<'_>) -> UpstreamSlot {
        let Admitted { call: Candidate { ticket, .. }, in_flight, .. } = admitted;
        let tracked = self.limiter.on_sent(now, ticket);
        let slots_bind = self.limits(in_flight).shortage.is_some();
        let memory = self.memory.as_mut();
        UpstreamSlot {
            attempt: self.cooldown.admit(now, ticket.has_failed, in_flight, slots_bind),
            tracked,
            memory: memory.map(|memory| Box::new(MemoryUse::take(memory, ticket, Prefix::default()))),
            assignment: None,
        }
    }

    fn on_success(&mut self, now: Instant, slot: &mut UpstreamSlot) -> bool {
        let was_open = self.cooldown.is_open();
        self.cooldown.on_success(now, slot.attempt, self.limiter.slots);
        self.note_closed(now);
        was_open
    }

    fn on_failure(&mut self, now: Instant, slot: &UpstreamSlot, failed: Failed) -> RetryPath {
        let Failed { call, failure, delay, jitter } = failed;
        let path = self.cooldown.on_failure(now, call, failure, slot.attempt, delay, jitter);
        self.note_closed(now);
        path
    }

    fn release(&mut self, _: Instant, _: GrantId, slot: &mut UpstreamSlot) -> bool {
        if let (Some(memory), Some(taken)) = (&mut self.memory, slot.memory.take()) {
            memory.release(taken.place);
        }
        false
    }
}

impl<W> Scheduler<W> {
    /// Applies the metrics that the engine of a single server reports. They bound the adaptive
    /// limit and, unless its size is configured, the KV-cache memory. Call [`Scheduler::next`]
    /// afterwards.
    ///
    /// Does nothing if the target is a pool: see [`Scheduler::observe`].
    pub fn on_engine_metrics(&mut self, now: Instant, metrics: &EngineMetrics) {
        let Self { queue, capacity, .. } = self;
        if capacity.on_engine_metrics(now, metrics) {
            // The memory was not known when these calls arrived.
            queue.update_requirements(|ticket, needs| {
                *needs = capacity.needs(ticket);
                true
            });
        }
        capacity.refresh_and_record(now);
        self.watch_gap(now);
    }
}
