//! Rules by which calls are let into the engine, first come first served: ours by itself, and what it is held against.

use std::collections::{HashMap, VecDeque};

use tidegate::estimate::Demand;
use tidegate::kv::{Forecast, Kv, Place, Progress};

use crate::lengths::Work;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// Knows how long each answer will be, and lets a call in if what all of them will hold fits at every moment, block by block.
    Oracle,
    /// [`Kv`], with lengths as they are learned from the answers before.
    Learned,
    /// Each call holds its `max_tokens` from beginning to end.
    Reserve { max_tokens: u32 },
    /// So many calls, whatever they hold.
    Slots(usize),
}

/// The rule, and what it knows.
pub(super) struct Door {
    rule: Rule,
    capacity: u64,
    block: u32,
    kv: Kv,
    calls: HashMap<u64, Inside>,
    reserved: u64,
    lengths: Lengths,
}

struct Inside {
    work: Work,
    produced: u32,
    held: Option<(Place, Progress)>,
}

impl Door {
    pub(super) fn new(rule: Rule, capacity: u64, block: u32) -> Self {
        let kv = Kv::new(capacity, HEADROOM);
        Self { rule, capacity, block, kv, calls: HashMap::new(), reserved: 0, lengths: Lengths::default() }
    }

    pub(super) fn fits(&mut self, work: &Work) -> bool {
        match self.rule {
            Rule::Oracle => {
                let inside = self
                    .calls
                    .values()
                    .map(|call| (call.work.prompt + call.produced, call.work.output - call.produced));
                let all = inside.chain([(work.prompt, work.output)]).collect();
                exact_peak(all, self.block) <= self.capacity
            }
            Rule::Learned => {
                let demand = self.lengths.demand(work);
                self.kv.need(&demand) <= self.kv.room() && self.kv.fits(&demand, &self.lengths.forecast())
            }
            Rule::Reserve { max_tokens } => {
                self.reserved + u64::from(work.prompt + max_tokens) <= self.capacity || self.calls.is_empty()
            }
            Rule::Slots(most) => self.calls.len() < most,
        }
    }

    pub(super) fn admit(&mut self, id: u64, work: Work) {
        let held = match self.rule {
            Rule::Learned => {
                let progress = Progress::default();
                let (demand, forecast) = (self.lengths.demand(&work), self.lengths.forecast());
                Some((self.kv.admit_expecting(&demand, forecast, progress.clone()), progress))
            }
            Rule::Reserve { max_tokens } => {
                self.reserved += u64::from(work.prompt + max_tokens);
                None
            }
            _ => None,
        };
        self.calls.insert(id, Inside { work, produced: 0, held });
    }

    pub(super) fn token(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.produced += 1;
        if let Some((_, progress)) = &call.held {
            progress.grew(1);
        }
    }

    /// A call has ended: what it was.
    pub(super) fn leave(&mut self, id: u64) -> Option<Work> {
        let Inside { work, held, .. } = self.calls.remove(&id)?;
        if let Some((place, _)) = held {
            self.kv.release(place);
        }
        if let Rule::Reserve { max_tokens } = self.rule {
            self.reserved -= u64::from(work.prompt + max_tokens);
        }
        self.lengths.learn(work.output);
        Some(work)
    }
}

/// What all calls will hold at the most, each given as what it holds and what is still to come: exact, in whole blocks, at each moment at which
/// one ends.
fn exact_peak(mut calls: Vec<(u32, u32)>, block: u32) -> u64 {
    calls.sort_unstable_by_key(|(_, left)| std::cmp::Reverse(*left));
    let ends: Vec<u32> = calls.iter().map(|(_, left)| *left).collect();
    ends.iter()
        .map(|&at| {
            let there = calls.iter().take_while(|(_, left)| *left >= at);
            there.map(|(held, _)| u64::from((held + at).next_multiple_of(block))).sum()
        })
        .max()
        .unwrap_or(0)
}

/// What a gate could have learned: the lengths of the last thousand answers.
#[derive(Default)]
struct Lengths {
    last: VecDeque<u32>,
    forecast: Forecast,
    fresh: usize,
}

/// A target's default.
const HEADROOM: f64 = 0.1;

/// Until something is known.
const COLD: u64 = 4_096;
const REMEMBERED: usize = 1_000;

impl Lengths {
    fn learn(&mut self, output: u32) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(output);
        self.fresh += 1;
        if self.fresh >= self.last.len() / 16 {
            self.forecast = Forecast::of(self.last.iter().copied().map(u64::from));
            self.fresh = 0;
        }
    }

    fn forecast(&self) -> Forecast {
        self.forecast.clone()
    }

    fn demand(&self, work: &Work) -> Demand {
        let output = if self.forecast.is_empty() { COLD } else { self.forecast.mean() as u64 };
        Demand { input: u64::from(work.prompt), output, max_output: Some(COLD), ..Demand::default() }
    }
}
