//! The slots and the memory of one replica of a pool.

use std::time::{Duration, Instant};

use crate::kv::{Forecast, Kv, KvView, Prefix};
use crate::placement::{Model, Placed};
use crate::schedule::{Limiter, MemoryUse, Rule, Ticket};

/// The minimum time without a rejection after which a half-open probe counts as accepted.
const MIN_PROBE_WAIT: Duration = Duration::from_secs(1);
/// A half-open probe counts as accepted if it was not rejected for this multiple of the time that
/// the last rejection took, or for [`MIN_PROBE_WAIT`] if that is longer.
const PROBE_WAIT_FACTOR: u32 = 4;

/// The memory in tokens that is assumed while the size is not known: more than any engine has.
const UNKNOWN_SIZE: u64 = 1 << 40;

/// The slots and the memory of one replica.
#[derive(Debug)]
pub(super) struct ReplicaSlots {
    pub(super) placed: Placed,
    pub(super) limiter: Limiter,
    /// The usable share of the slots, from 0 to 1. It is below 1 for some time after the replica
    /// has become eligible (slow start).
    pub(super) share: f64,
    pub(super) in_flight: usize,
    /// The memory. Calls are counted in it even while its size is not known, because the size may
    /// become known later.
    memory: Kv,
    /// Whether the size of the memory is known.
    sized: bool,
    /// Whether the size of the memory is configured, so that the size that the replica reports is
    /// ignored.
    pub(super) is_size_configured: bool,
    /// The longest prompt, in tokens, for which there may be memory, as of the last measurement.
    /// `u32::MAX` if that is not known.
    pub(super) longest: u32,
    /// Whether the engine stores a common prefix of several calls only once. See
    /// [`EngineMetrics::shares_prefixes`](crate::placement::EngineMetrics).
    pub(super) shares_prefixes: bool,
    /// Whether the replica last rejected a call as full or as over a rate limit. While this is
    /// `true`, one call at a time, the half-open probe, checks whether the replica accepts calls
    /// again.
    pub(super) is_full: bool,
    /// How long the half-open probe must go without a rejection to count as accepted.
    probe_wait: Duration,
    /// When the half-open probe in flight was sent, or `None` if none is in flight.
    half_open_probe: Option<Instant>,
    /// The models that the replica last reported, or `None` if it has reported none.
    pub(super) models: Option<Vec<Model>>,
}

impl ReplicaSlots {
    pub(super) fn new(placed: Placed, limiter: Limiter) -> Self {
        Self {
            placed,
            limiter,
            share: 1.0,
            in_flight: 0,
            memory: Kv::new(UNKNOWN_SIZE, 0.0),
            sized: false,
            is_size_configured: false,
            longest: u32::MAX,
            shares_prefixes: false,
            is_full: false,
            probe_wait: MIN_PROBE_WAIT,
            half_open_probe: None,
            models: None,
        }
    }

    /// Sets the size of the memory in tokens. Does nothing if the new size was reported and another
    /// one is configured.
    pub(super) fn set_memory(&mut self, tokens: u64, headroom: f64, is_size_configured: bool) {
        if self.is_size_configured && !is_size_configured {
            return;
        }
        (self.is_size_configured, self.sized) = (is_size_configured, true);
        self.memory.resize(tokens, headroom);
    }

    /// Returns the number of slots that may be in use now: the limit or, in slow start, its usable
    /// share, at least 1. At a full replica, returns instead the slots in use by calls other than
    /// the half-open probe, plus one for the probe, at most the limit.
    pub(super) fn slots(&self) -> usize {
        let all = self.limiter.slots;
        if self.is_full {
            let others = self.in_flight.saturating_sub(usize::from(self.half_open_probe.is_some()));
            return all.min(others + 1);
        }
        if self.share >= 1.0 { all } else { ((self.share * all as f64) as usize).max(1).min(all) }
    }

    /// Counts a call that is sent to the replica. Returns the time if it is the half-open probe.
    pub(super) fn on_sent(&mut self, now: Instant) -> Option<Instant> {
        self.in_flight += 1;
        let is_half_open_probe = self.is_full && self.half_open_probe.is_none();
        is_half_open_probe.then(|| *self.half_open_probe.insert(now))
    }

    /// Records that the replica rejected a call as full or as over a rate limit, `took` after the
    /// call was sent.
    pub(super) fn on_rejected(&mut self, took: Duration) {
        self.is_full = true;
        self.probe_wait = (took * PROBE_WAIT_FACTOR).max(MIN_PROBE_WAIT);
    }

    /// Records that the replica accepts calls again, or that it is not known to be full any more.
    pub(super) fn on_has_room(&mut self) {
        self.is_full = false;
        self.half_open_probe = None;
    }

    /// Stops counting a call that has ended. `probe_since` is what [`ReplicaSlots::on_sent`] has
    /// returned. If the call still is the half-open probe, another call may become the probe.
    pub(super) fn on_end(&mut self, probe_since: Option<Instant>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.half_open_probe.take_if(|since| Some(*since) == probe_since);
    }

    /// Returns when the half-open probe in flight counts as accepted, or `None` if none is in
    /// flight.
    pub(super) fn probe_accepted_at(&self) -> Option<Instant> {
        self.half_open_probe.map(|since| since + self.probe_wait)
    }

    /// Lets the limit change with time, and ends a half-open probe that counts as accepted by
    /// `now`.
    pub(super) fn tick(&mut self, now: Instant) {
        self.limiter.tick(now);
        if self.probe_accepted_at().is_some_and(|at| at <= now) {
            self.on_has_room();
        }
    }

    /// Returns the rule that keeps another call from being sent to the replica, or `None` if it can
    /// take one more call.
    pub(super) fn shortage(&self) -> Option<Rule> {
        if self.in_flight >= self.slots() { Some(Rule::Slots) } else { self.limiter.shortage(self.in_flight) }
    }

    /// Returns the size of the memory in tokens, which is the maximum input of one call, or `None`
    /// if the size is not known.
    pub(super) fn most(&self) -> Option<u64> {
        self.sized.then(|| self.memory.capacity())
    }

    /// Returns `true` if there is memory for a call, as of the last measurement.
    pub(super) fn fits(&self, ticket: &Ticket, forecast: &Forecast) -> bool {
        self.slack(ticket, forecast) >= 0.0
    }

    /// Returns how many tokens of memory would be left at the predicted peak of use after a call
    /// was admitted: negative if the call does not fit, infinite if the size of the memory is not
    /// known.
    pub(super) fn slack(&self, ticket: &Ticket, forecast: &Forecast) -> f64 {
        let slack = || self.memory.slack(&ticket.demand, forecast, &self.prefix(ticket));
        if self.sized { slack() } else { f64::INFINITY }
    }

    /// Returns the prefix that the call may share with others. Returns an empty one if the engine
    /// does not share prefixes.
    fn prefix(&self, ticket: &Ticket) -> Prefix {
        let wants = ticket.wants.as_ref().filter(|_| self.shares_prefixes);
        wants.map(|wants| wants.affinity.prefix.clone()).unwrap_or_default()
    }

    /// Updates [`ReplicaSlots::longest`] from the memory that is free now. Memory becomes free as
    /// calls end and as their lengths become known.
    pub(super) fn measure(&mut self) {
        let longest = if self.sized { self.memory.max_prompt() } else { u32::MAX };
        // A call needs less memory than its prompt if it shares a prefix. How much less differs by
        // call.
        self.longest = if self.shares_prefixes && self.in_flight > 0 { u32::MAX } else { longest };
    }

    /// Returns the state of the memory, or `None` if its size is not known.
    pub(super) fn memory(&self) -> Option<KvView> {
        self.sized.then(|| self.memory.view())
    }

    /// Returns the number of calls like those in flight for which the replica has memory. The
    /// maximum if it is not known.
    pub(super) fn calls_in_memory(&self) -> usize {
        self.sized.then_some(&self.memory).and_then(Kv::max_calls).unwrap_or(usize::MAX)
    }

    /// Takes memory for a call, even if there is too little, and returns what was taken.
    pub(super) fn admit(&mut self, ticket: &Ticket) -> MemoryUse {
        let prefix = self.prefix(ticket);
        MemoryUse::take(&mut self.memory, ticket, prefix)
    }

    pub(super) fn release(&mut self, space: MemoryUse) {
        self.memory.release(space.place);
    }
}
