//! One replica, as far as slots and memory go.

use std::time::{Duration, Instant};

use super::super::limiter::Limiter;
use super::super::rule::Rule;
use crate::kv::{self, Forecast, Kv, Prefix};
use crate::placement::{Model, Placed};
use crate::schedule::Ticket;
use crate::schedule::upstream::MemoryUse;

/// A call that has not been turned away for this long was taken in, unless the last one took longer to be turned away.
const PATIENCE: Duration = Duration::from_secs(1);
/// In that case, for this many times as long as that took.
const LONGER: u32 = 4;

/// What a memory counts as having before its size is known, in tokens: more than any engine.
const UNKNOWN_SIZE: u64 = 1 << 40;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ReplicaSlots {
    pub(super) placed: Placed,
    pub(super) limiter: Limiter,
    /// The share of its slots that is in force, 0 to 1: less than all while it comes back.
    pub(super) share: f64,
    pub(super) in_flight: usize,
    /// Kept from its first call on: its size may become known later.
    memory: Kv,
    /// Whether that is known.
    sized: bool,
    /// Whether its memory's size was configured, and so is not asked.
    is_size_configured: bool,
    /// The longest prompt that it may have memory for, at the last survey: see [`Kv::room`].
    pub(super) longest: u32,
    /// Whether calls that begin alike hold their beginning once: see [`EngineMetrics::shares_prefixes`](crate::placement::EngineMetrics).
    pub(super) shares_prefixes: bool,
    /// Whether the last that it said was that it has no room, or that calls come too fast. One call at a time asks whether that is still so.
    pub(super) is_full: bool,
    /// How long a call that asks must not have been turned away to count as taken in.
    patience: Duration,
    /// When that call went, if one is on its way.
    half_open_probe: Option<Instant>,
    /// What it last said that it serves.
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

    /// Its memory is so large. `told`: by the configuration, which knows better than the replica.
    pub(super) fn set_memory(&mut self, tokens: u64, headroom: f64, is_size_configured: bool) {
        if self.is_size_configured && !is_size_configured {
            return;
        }
        (self.is_size_configured, self.sized) = (is_size_configured, true);
        self.memory.resize(tokens, headroom);
    }

    /// Nobody configures how large its memory is any more: what it says of itself holds, once it does.
    pub(super) fn ask_memory(&mut self) {
        self.is_size_configured = false;
    }

    /// Slots in force.
    pub(super) fn slots(&self) -> usize {
        let all = self.limiter.slots();
        if self.is_full {
            let others = self.in_flight.saturating_sub(usize::from(self.half_open_probe.is_some()));
            return all.min(others + 1);
        }
        if self.share >= 1.0 { all } else { ((self.share * all as f64) as usize).max(1).min(all) }
    }

    /// A call goes there. Says whether it is the one that asks for all.
    pub(super) fn on_sent(&mut self, now: Instant) -> bool {
        self.in_flight += 1;
        let is_half_open_probe = self.is_full && self.half_open_probe.is_none();
        if is_half_open_probe {
            self.half_open_probe = Some(now);
        }
        is_half_open_probe
    }

    /// It turned a call away, so long after the call was sent.
    pub(super) fn on_turned_away(&mut self, took: Duration) {
        self.is_full = true;
        self.patience = (took * LONGER).max(PATIENCE);
    }

    /// It has room, or something else is known of it since.
    pub(super) fn on_room(&mut self) {
        self.is_full = false;
        self.half_open_probe = None;
    }

    /// A call is over there.
    pub(super) fn on_end(&mut self, was_half_open_probe: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if was_half_open_probe {
            self.half_open_probe = None;
        }
    }

    /// Until when it has to have turned the one that asks away, if it is to be believed that it still has no room.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        self.half_open_probe.map(|since| since + self.patience)
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now: Instant) {
        self.limiter.tick(now);
        if self.patience_ends().is_some_and(|at| at <= now) {
            self.on_room();
        }
    }

    /// What leaves no room for another call, whatever that takes.
    pub(super) fn shortage(&self) -> Option<Rule> {
        if self.in_flight >= self.slots() { Some(Rule::Slots) } else { self.limiter.shortage(self.in_flight) }
    }

    /// The most that any call may hold; `None`: not known.
    pub(super) fn most(&self) -> Option<u64> {
        self.sized.then(|| self.memory.most())
    }

    /// Returns whether it has memory for a call, by the last survey.
    pub(super) fn fits(&self, ticket: &Ticket, forecast: &Forecast) -> bool {
        self.slack(ticket, forecast) >= 0.0
    }

    /// Returns how many tokens of its memory stay usable with a call: below zero where the call does not fit, infinite where the
    /// size is not known.
    pub(super) fn slack(&self, ticket: &Ticket, forecast: &Forecast) -> f64 {
        let slack = || self.memory.slack(&ticket.demand, forecast, &self.prefix(ticket));
        if self.sized { slack() } else { f64::INFINITY }
    }

    /// Returns what a call may share with others there.
    fn prefix(&self, ticket: &Ticket) -> Prefix {
        let wants = ticket.wants.as_ref().filter(|_| self.shares_prefixes);
        wants.map(|wants| wants.affinity.prefix.clone()).unwrap_or_default()
    }

    pub(super) fn measure(&mut self) {
        let longest = if self.sized { self.memory.longest() } else { u32::MAX };
        // A call needs less than its prompt where it shares the beginning: how much, is only known of each call.
        self.longest = if self.shares_prefixes && self.in_flight > 0 { u32::MAX } else { longest };
    }

    pub(super) fn memory(&self) -> Option<kv::View> {
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
