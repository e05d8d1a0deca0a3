//! The compared admission rules in front of the engine, first come, first served: Tidegate's policy
//! without a gate, the same policy with parts switched off, and simpler rules.

use std::collections::{HashMap, HashSet, VecDeque};

use tidegate::policy::kv::{Forecast, Kv, KvReservation, Prefix, Progress};
use tidegate::tokens::Demand;

use super::workload::Workload;
use crate::trace_lengths::Work;

/// An admission rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// Knows the length of each answer and the shared blocks. Admits a call if the blocks of all
    /// calls fit into memory at each later moment.
    Oracle,
    /// Tidegate's policy ([`Kv`]), which learns lengths from earlier answers.
    Learned,
    /// Like `Learned`, but each answer is expected to have exactly the mean length.
    Certain,
    /// Like `Learned`, but blocks that calls share are counted once for each call.
    Unshared,
    /// Reserves memory for the prompt and for `max_tokens` of each call, from its start to its end.
    Reserve { max_tokens: u32 },
    /// Admits up to this number of calls, regardless of memory.
    Slots(usize),
}

/// An admission rule, with the calls in flight and the output lengths that it has learned.
pub(super) struct Admission {
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
    held: Option<(KvReservation, Progress)>,
}

impl Admission {
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

    /// Returns `true` if the rule would admit call `id` now. Does not admit it.
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
                self.kv.available();
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
                Some((self.kv.admit(&demand, forecast, prefix, progress.clone()), progress))
            }
            Rule::Reserve { max_tokens } => {
                self.reserved += u64::from(work.prompt + max_tokens);
                None
            }
            _ => None,
        };
        self.calls.insert(id, Inside { work, produced: 0, held });
    }

    /// Returns what the rule expects of a call: its tokens, the forecast of its output length, and
    /// the prefix that it shares with other calls.
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
            progress.add(1);
        }
    }

    /// Removes a call that has ended. Returns its lengths, or `None` if it was not in flight.
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

/// A call in flight and its memory, in tokens: the tokens that it holds now, and those that it will
/// add until its end.
#[derive(Clone, Copy)]
struct Holds {
    group: u64,
    /// Tokens, in whole blocks, that all calls of the group share.
    common: u32,
    now: u32,
    /// Output tokens that the call has not produced yet.
    left: u32,
}

/// Returns the highest number of tokens, in whole blocks, that the calls will hold together at any
/// moment until their ends. Tokens that the calls of a group share count once.
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

/// The output lengths of the last [`REMEMBERED`] answers, and the forecast that is computed from
/// them.
#[derive(Default)]
struct Lengths {
    last: VecDeque<u32>,
    forecast: Forecast,
    fresh: usize,
}

/// The share of the memory that a target keeps free by default, from 0 to 1.
const HEADROOM: f64 = 0.04;

/// The expected output, in tokens, before the first answer.
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
            self.forecast = Forecast::from_lengths(self.last.iter().copied().map(u64::from));
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
