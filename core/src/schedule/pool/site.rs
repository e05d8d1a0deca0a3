//! One replica, as far as slots and memory go.

use super::super::limiter::Limiter;
use super::super::why::Rule;
use crate::kv::{self, Kv, Place, Progress};
use crate::placement::{Model, Placed};
use crate::schedule::Ticket;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) placed: Placed,
    pub(super) limiter: Limiter,
    /// The share of its slots that is in force, 0 to 1: less than all while it comes back.
    pub(super) share: f64,
    pub(super) in_flight: usize,
    memory: Option<Memory>,
    memories: u64,
    /// Whether its memory's size was configured, and so is not asked.
    told: bool,
    /// The longest prompt that it has memory for, at the last survey.
    pub(super) longest: u32,
    /// Whether the last that it said was that it has no room, or that calls come too fast.
    pub(super) turned_away: bool,
    /// What it last said that it serves.
    pub(super) models: Option<Vec<Model>>,
}

/// A replica's memory. One that was found to be of another size is another one.
#[derive(Debug)]
struct Memory {
    number: u64,
    kv: Kv,
}

/// What a call takes of a replica's memory.
#[derive(Debug)]
pub(super) struct Space {
    memory: u64,
    place: Place,
    pub(super) progress: Progress,
}

impl Site {
    pub(super) fn new(placed: Placed, limiter: Limiter) -> Self {
        Self {
            placed,
            limiter,
            share: 1.0,
            in_flight: 0,
            memory: None,
            memories: 0,
            told: false,
            longest: u32::MAX,
            turned_away: false,
            models: None,
        }
    }

    /// Its memory is so large. `told`: by the configuration, which knows better than the replica. Of calls that are there already nothing is known.
    pub(super) fn set_memory(&mut self, tokens: u64, headroom: f64, told: bool) {
        let known = self.memory.as_ref().map(|memory| memory.kv.most());
        if (self.told && !told) || known == Some(tokens) {
            return;
        }
        self.told = told;
        self.memories += 1;
        self.memory = Some(Memory { number: self.memories, kv: Kv::new(tokens, headroom) });
    }

    /// Slots in force.
    pub(super) fn slots(&self) -> usize {
        let all = self.limiter.slots();
        if self.share >= 1.0 { all } else { ((self.share * all as f64) as usize).max(1).min(all) }
    }

    /// What leaves no room for another call, whatever that takes.
    pub(super) fn lack(&self) -> Option<Rule> {
        if self.in_flight >= self.slots() { Some(Rule::Slots) } else { self.limiter.lack(self.in_flight) }
    }

    /// The most that any call may hold; `None`: not known.
    pub(super) fn most(&self) -> Option<u64> {
        self.memory.as_ref().map(|memory| memory.kv.most())
    }

    pub(super) fn survey(&mut self) {
        self.longest = self.memory.as_mut().map_or(u32::MAX, |memory| memory.kv.longest());
    }

    pub(super) fn memory(&self) -> Option<kv::View> {
        self.memory.as_ref().map(|memory| memory.kv.view())
    }

    pub(super) fn admit(&mut self, ticket: &Ticket) -> Option<Space> {
        let Memory { number, kv } = self.memory.as_mut()?;
        let progress = Progress::default();
        let place = kv.admit_expecting(&ticket.demand, ticket.forecast.clone(), progress.clone());
        Some(Space { memory: *number, place, progress })
    }

    pub(super) fn release(&mut self, space: Space) {
        if let Some(memory) = self.memory.as_mut().filter(|memory| memory.number == space.memory) {
            memory.kv.release(space.place);
        }
    }
}
