//! Rules by which calls are let into the engine, first come first served: ours by itself, ours with parts switched off, and what
//! it is held against.

use std::collections::{HashMap, HashSet, VecDeque};

use tidegate::kv::{Forecast, Kv, Place, Prefix, Progress};
use tidegate::tokens::Demand;

use super::workload::Workload;
use crate::lengths::Work;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// Knows how long each answer will be, and what the calls share, and lets a call in if what all of them will hold fits at
    /// every moment, block by block.
    Oracle,
    /// [`Kv`], with lengths as they are learned from the answers before.
    Learned,
    /// The same, with the mean length taken as certain.
    Certain,
    /// The same as `Learned`, with the blocks that calls share counted for each of them.
    Unshared,
    /// Each call holds its `max_tokens` from beginning to end.
    Reserve { max_tokens: u32 },
    /// So many calls, whatever they hold.
    Slots(usize),
}

/// The rule, and what it knows.
pub(super) struct Door {
    rule: Rule,
    workload: Workload,
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
    pub(super) fn new(rule: Rule, workload: Workload, capacity: u64, block: u32) -> Self {
        Self {
            rule,
            workload,
            capacity,
            block,
            kv: Kv::new(capacity, HEADROOM),
            calls: HashMap::new(),
            reserved: 0,
            lengths: Lengths::default(),
        }
    }

    /// Whether the call of this number may go in.
    pub(super) fn fits(&mut self, id: u64, work: &Work) -> bool {
        match self.rule {
            Rule::Oracle => {
                let of = |id: u64, work: &Work, produced: u32| Holds {
                    group: self.workload.group(id),
                    common: self.workload.common(),
                    now: work.prompt + produced,
                    left: work.output - produced,
                };
                let inside = self.calls.iter().map(|(id, call)| of(*id, &call.work, call.produced));
                exact_peak(inside.chain([of(id, work, 0)]).collect(), self.block) <= self.capacity
            }
            Rule::Learned | Rule::Certain | Rule::Unshared => {
                let (demand, forecast, prefix) = self.asks(id, work);
                // Surveys the calls in flight.
                self.kv.room();
                self.kv.fits(&demand, &forecast, &prefix)
            }
            Rule::Reserve { max_tokens } => {
                self.reserved + u64::from(work.prompt + max_tokens) <= self.capacity || self.calls.is_empty()
            }
            Rule::Slots(most) => self.calls.len() < most,
        }
    }

    pub(super) fn admit(&mut self, id: u64, work: Work) {
        let held = match self.rule {
            Rule::Learned | Rule::Certain | Rule::Unshared => {
                let progress = Progress::default();
                let (demand, forecast, prefix) = self.asks(id, &work);
                Some((self.kv.admit_expecting(&demand, forecast, prefix, progress.clone()), progress))
            }
            Rule::Reserve { max_tokens } => {
                self.reserved += u64::from(work.prompt + max_tokens);
                None
            }
            _ => None,
        };
        self.calls.insert(id, Inside { work, produced: 0, held });
    }

    /// Returns the demand, forecast and prefix of a call, as the rule knows them.
    fn asks(&self, id: u64, work: &Work) -> (Demand, Forecast, Prefix) {
        let forecast = if self.rule == Rule::Certain { Forecast::default() } else { self.lengths.forecast() };
        let prefix =
            if self.rule == Rule::Unshared { Prefix::default() } else { self.workload.prefix(id, work) };
        (self.lengths.demand(work), forecast, prefix)
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

/// What a call holds, in tokens.
#[derive(Clone, Copy)]
struct Holds {
    group: u64,
    /// The tokens of its beginning that its group has in common, in whole blocks.
    common: u32,
    now: u32,
    /// Tokens still to come.
    left: u32,
}

/// What all calls will hold at the most: exact, in whole blocks, at each moment at which one ends; what a group has in common, once.
fn exact_peak(mut calls: Vec<Holds>, block: u32) -> u64 {
    calls.sort_unstable_by_key(|call| std::cmp::Reverse(call.left));
    let (mut groups, mut peak) = (HashSet::new(), 0);
    let (mut common, mut from) = (0, 0);
    while let Some(at) = calls.get(from).map(|call| call.left) {
        while let Some(call) = calls.get(from).filter(|call| call.left == at) {
            common += if groups.insert(call.group) { u64::from(call.common) } else { 0 };
            from += 1;
        }
        let own = |call: &Holds| u64::from((call.now + at).next_multiple_of(block) - call.common);
        peak = peak.max(common + calls.iter().take(from).map(own).sum::<u64>());
    }
    peak
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
