//! The slots and the memory of one replica.

use std::time::{Duration, Instant};

use super::super::limiter::Limiter;
use super::super::rule::Rule;
use crate::kv::{Forecast, Kv, KvView, Prefix};
use crate::placement::{Model, Placed};
use crate::schedule::Ticket;
use crate::schedule::upstream::MemoryUse;

/// A half-open probe that was not rejected for this long was accepted, unless the last rejection
/// took longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// In that case, for this multiple of the time that the rejection took.
const LONGER: u32 = 4;

/// The assumed memory size in tokens while the size is unknown: more than any engine has.
const UNKNOWN_SIZE: u64 = 1 << 40;

/// The slots and the memory of one replica.
#[derive(Debug)]
pub(super) struct ReplicaSlots {
    pub(super) placed: Placed,
    pub(super) limiter: Limiter,
    /// The share of the slots in force (0 to 1): below 1 while the replica starts slowly.
    pub(super) share: f64,
    pub(super) in_flight: usize,
    /// Kept from the first call on, because the size may become known later.
    memory: Kv,
    /// Whether the size of the memory is known.
    sized: bool,
    /// Whether the size is configured, so that the replica's own value is ignored.
    is_size_configured: bool,
    /// The longest prompt that may fit into the memory, in tokens, at the last measurement. See
    /// [`Kv::max_prompt`].
    pub(super) longest: u32,
    /// Whether calls with a common prefix hold it once. See
    /// [`EngineMetrics::shares_prefixes`](crate::placement::EngineMetrics).
    pub(super) shares_prefixes: bool,
    /// Whether the replica's last response was that it is full or limits the rate. One half-open
    /// probe at a time checks whether that still holds.
    pub(super) is_full: bool,
    /// How long a half-open probe must stay unrejected to count as accepted.
    patience: Duration,
    /// When the half-open probe in flight was sent.
    half_open_probe: Option<Instant>,
    /// The models that the replica last reported.
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
            patience: PATIENCE,
            half_open_probe: None,
            models: None,
        }
    }

    /// Sets the size of the memory. A configured size takes precedence over a reported one.
    pub(super) fn set_memory(&mut self, tokens: u64, headroom: f64, is_size_configured: bool) {
        if self.is_size_configured && !is_size_configured {
            return;
        }
        (self.is_size_configured, self.sized) = (is_size_configured, true);
        self.memory.resize(tokens, headroom);
    }

    /// Uses the size that the replica reports from now on.
    pub(super) fn ask_memory(&mut self) {
        self.is_size_configured = false;
    }

    /// Returns the slots in force.
    pub(super) fn slots(&self) -> usize {
        let all = self.limiter.slots();
        if self.is_full {
            let others = self.in_flight.saturating_sub(usize::from(self.half_open_probe.is_some()));
            return all.min(others + 1);
        }
        if self.share >= 1.0 { all } else { ((self.share * all as f64) as usize).max(1).min(all) }
    }

    /// Records a call that is sent. Returns `true` if it is the half-open probe.
    pub(super) fn on_sent(&mut self, now: Instant) -> bool {
        self.in_flight += 1;
        let is_half_open_probe = self.is_full && self.half_open_probe.is_none();
        if is_half_open_probe {
            self.half_open_probe = Some(now);
        }
        is_half_open_probe
    }

    /// Records a rejection, `took` after the call was sent.
    pub(super) fn on_turned_away(&mut self, took: Duration) {
        self.is_full = true;
        self.patience = (took * LONGER).max(PATIENCE);
    }

    /// Records that the replica has room, or that a later observation replaces its rejection.
    pub(super) fn on_room(&mut self) {
        self.is_full = false;
        self.half_open_probe = None;
    }

    /// Records the end of a call.
    pub(super) fn on_end(&mut self, was_half_open_probe: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if was_half_open_probe {
            self.half_open_probe = None;
        }
    }

    /// Returns when the half-open probe counts as accepted.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        self.half_open_probe.map(|since| since + self.patience)
    }

    /// Lets time pass.
    pub(super) fn tick(&mut self, now: Instant) {
        self.limiter.tick(now);
        if self.patience_ends().is_some_and(|at| at <= now) {
            self.on_room();
        }
    }

    /// Returns what leaves no room for another call.
    pub(super) fn shortage(&self) -> Option<Rule> {
        if self.in_flight >= self.slots() { Some(Rule::Slots) } else { self.limiter.shortage(self.in_flight) }
    }

    /// Returns the maximum size of a call in tokens, or `None` if it is not known.
    pub(super) fn most(&self) -> Option<u64> {
        self.sized.then(|| self.memory.capacity())
    }

    /// Returns `true` if there is memory for a call, by the last measurement.
    pub(super) fn fits(&self, ticket: &Ticket, forecast: &Forecast) -> bool {
        self.slack(ticket, forecast) >= 0.0
    }

    /// Returns how many tokens stay usable with a call: negative if it does not fit, infinite if
    /// the size is not known.
    pub(super) fn slack(&self, ticket: &Ticket, forecast: &Forecast) -> f64 {
        let slack = || self.memory.slack(&ticket.demand, forecast, &self.prefix(ticket));
        if self.sized { slack() } else { f64::INFINITY }
    }

    /// Returns the prefix that a call may share with others.
    fn prefix(&self, ticket: &Ticket) -> Prefix {
        let wants = ticket.wants.as_ref().filter(|_| self.shares_prefixes);
        wants.map(|wants| wants.affinity.prefix.clone()).unwrap_or_default()
    }

    pub(super) fn measure(&mut self) {
        let longest = if self.sized { self.memory.max_prompt() } else { u32::MAX };
        // A call needs less memory than its prompt if it shares a prefix. How much less differs by
        // call.
        self.longest = if self.shares_prefixes && self.in_flight > 0 { u32::MAX } else { longest };
    }

    pub(super) fn memory(&self) -> Option<KvView> {
        self.sized.then(|| self.memory.view())
    }

    pub(super) fn admit(&mut self, ticket: &Ticket) -> MemoryUse {
        let prefix = self.prefix(ticket);
        MemoryUse::take(&mut self.memory, ticket, prefix)
    }

    pub(super) fn release(&mut self, space: MemoryUse) {
        self.memory.release(space.place);
    }
}
