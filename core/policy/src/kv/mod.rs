//! KV-cache memory: how many tokens a self-hosted engine can hold at once, and how many the calls
//! in flight will hold.
//!
//! # Algorithm
//!
//! A call is admitted by the *future peak* (LightLLM's Past-Future scheduler, arXiv 2507.10150):
//! from what each call in flight has produced ([`Progress`]) and how long it may become
//! ([`Forecast`]) follows what all calls will hold at each step at which one of them may end. The
//! largest of these values is the peak.
//!
//! Lengths are known only as distributions. The paper draws one length per call; here memory use is
//! a sum of independent lengths with a mean and a standard deviation, and the peak is the mean plus
//! `CAUTION` standard deviations. Over many calls, deviations cancel out, so no call is charged its
//! own worst case. The headroom covers errors that all forecasts share.
//!
//! # Rationale
//!
//! Reserving the maximum that each call may produce admits almost nothing, because callers set it
//! far above what they need. Reserving nothing admits more than the engine can finish, which then
//! preempts calls and recomputes them.
//!
//! # Guarantees
//!
//! - A call fits if the peak with it stays within the usable memory. The call counts with the
//!   forecast at the time of the decision.
//! - An admission without shared prefixes never lowers the peak, and a release never raises it.
//! - An idle engine admits any call that it can hold. Each admission is released once, with
//!   [`Kv::release`].
//! - For certain lengths, the peak is exact or above the exact one by at most a sixteenth of what
//!   is still to come.
//!
//! # Prefix caching
//!
//! An engine with prefix caching holds blocks that several running calls share only once. A call
//! therefore needs its input minus the prefixes that calls in flight already hold ([`Prefix`]). A
//! prefix that more than one call has held counts once, at each future step, until the last of
//! these calls ends. Cached blocks without a running call are free memory, because the engine
//! evicts them on demand.
//!
//! # Limitations
//!
//! - Calls of other clients of the same engine are not known. Give each client its share of
//!   `kv_tokens`.
//! - The progress of an answer that arrives in one piece is not known: its whole expected length
//!   counts from the start.
//!
//! Checking a call takes one pass over about a hundred steps. [`Kv::room`] is an upper bound of the
//! prompts that fit, which saves that pass for most calls that do not fit. Calls are surveyed again
//! when they have produced `STALE` tokens each.

mod cost;
mod forecast;
mod horizon;
mod progress;
#[cfg(test)]
mod tests;

pub use cost::{cost, held};
pub use forecast::Forecast;
pub use progress::Progress;
pub use tidegate_protocol::request::Prefix;

use std::collections::HashMap;

use forecast::Remaining;
use horizon::Horizon;
use tidegate_tokens::Demand;

/// Standard deviations of the peak above its mean. Chosen by the experiment `kv`, together with the
/// default headroom, on seeds that it does not report.
const CAUTION: f64 = 1.25;

/// Mean number of tokens that calls may produce before they are surveyed again. Less than a block.
const STALE: u64 = 8;

/// Rounding error of sums, in tokens.
const ROUNDING: f64 = 1e-6;

/// Tokens per block, the engine's unit of memory (vLLM's default). On average, a call wastes half
/// of its last block.
const BLOCK: f64 = 16.0;

/// The memory reserved for one call. Return it once with [`Kv::release`].
#[derive(Debug)]
#[must_use = "a place that is not released is lost"]
pub struct Place {
    at: usize,
}

/// The memory of one engine and the calls in flight.
#[derive(Clone, Debug)]
pub struct Kv {
    capacity: u64,
    usable: u64,
    calls: Vec<Option<Call>>,
    free: Vec<usize>,
    /// The prefixes that calls in flight hold, by hash.
    beginnings: HashMap<u64, Beginning>,
    /// Tokens of the prefixes that more than one call has held.
    shared: u64,
    horizon: Horizon,
    /// Total tokens produced at the last survey.
    surveyed: u64,
    /// Longest prompt that may fit into the current horizon, if it was computed.
    room: Option<u32>,
}

/// State of an engine's memory, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Capacity of the engine.
    pub capacity: u64,
    /// Capacity that may be used: without the headroom.
    pub usable: u64,
    /// Number of calls in flight.
    pub calls: usize,
    /// Tokens held now, as far as observed. Shared prefixes count once.
    pub held: u64,
    /// Tokens held at the future peak.
    pub peak: u64,
}

/// A prompt prefix that calls in flight hold.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// Tokens beyond the previous prefix.
    tokens: u64,
    holders: usize,
    /// The call that the prefix counts for. `None` once it has had a second holder: then it counts
    /// by itself.
    owner: Option<usize>,
}

/// The changes that an admission makes.
struct Admission {
    call: Call,
    /// Calls that no longer count for what they share with the new one, with the number of tokens.
    relieved: Vec<(usize, u64)>,
    /// Sum of these tokens.
    shared: u64,
    /// Everything that the admission adds.
    horizon: Horizon,
}

#[derive(Clone, Debug)]
struct Call {
    /// Tokens that count for this call alone.
    input: u64,
    prefix: Prefix,
    /// Tokens of the whole prompt.
    whole: u64,
    forecast: Forecast,
    progress: Progress,
    /// Tokens produced at the last survey.
    produced: u64,
}

impl Kv {
    /// Creates an engine that holds `capacity` tokens, of which the share `headroom` is kept free.
    pub fn new(capacity: u64, headroom: f64) -> Self {
        Self {
            capacity,
            usable: (capacity as f64 * (1.0 - headroom)) as u64,
            calls: Vec::new(),
            free: Vec::new(),
            beginnings: HashMap::new(),
            shared: 0,
            horizon: Horizon::default(),
            surveyed: 0,
            room: None,
        }
    }

    /// Returns the minimum that a call needs, to compare with [`Kv::room`]: its input in tokens.
    /// Its output is not included, because it is known better at admission than on arrival.
    pub fn need(&self, demand: &Demand) -> u32 {
        small(if demand.input <= self.capacity { demand.input.min(self.usable) } else { demand.input })
    }

    /// Returns the largest input in tokens that one more call may have. No call that needs more
    /// fits, unless it shares a prefix with a call in flight. For calls that need less,
    /// [`Kv::fits`] decides. Surveys the calls in flight if that is due.
    pub fn room(&mut self) -> u32 {
        if self.is_idle() {
            return small(self.usable);
        }
        if self.is_stale() {
            self.survey();
        }
        // Each call in flight, and the new one, produces at least one more token.
        let (usable, horizon) = (self.usable as f64, &self.horizon);
        let free = || usable - horizon.soon(CAUTION) - BLOCK / 2.0 - 1.0;
        *self.room.get_or_insert_with(|| small((free() + ROUNDING).max(0.0) as u64))
    }

    /// Returns `true` if a call with this forecast fits now, according to the last survey. An idle
    /// engine admits any call that it can hold.
    pub fn fits(&self, demand: &Demand, forecast: &Forecast, prefix: &Prefix) -> bool {
        self.slack(demand, forecast, prefix) >= 0.0
    }

    /// Returns the usable tokens left at the peak with this call. If negative, the call does not
    /// fit.
    pub fn slack(&self, demand: &Demand, forecast: &Forecast, prefix: &Prefix) -> f64 {
        if self.is_idle() {
            return if demand.input <= self.capacity { self.usable as f64 } else { f64::NEG_INFINITY };
        }
        let admission = self.admission(demand, forecast.clone(), prefix.clone(), Progress::default());
        self.usable as f64 - self.horizon.peak_with(&admission.horizon, CAUTION) + ROUNDING
    }

    /// Returns an upper bound of the prompts that fit, in tokens.
    pub fn longest(&mut self) -> u32 {
        let room = self.room();
        if room >= small(self.usable) { small(self.capacity) } else { room }
    }

    /// Changes the capacity. The calls in flight are kept.
    pub fn resize(&mut self, capacity: u64, headroom: f64) {
        self.capacity = capacity;
        self.usable = (capacity as f64 * (1.0 - headroom)) as u64;
        self.survey();
    }

    /// Returns the maximum tokens of one call on an idle engine.
    pub fn most(&self) -> u64 {
        self.capacity
    }

    /// Admits a call whose length equals its demand. `progress` reports how far its answer has
    /// come.
    pub fn admit(&mut self, demand: &Demand, progress: Progress) -> Place {
        self.admit_expecting(demand, Forecast::default(), Prefix::default(), progress)
    }

    /// Admits a call with a forecast of its length, limited to what its demand allows.
    pub fn admit_expecting(
        &mut self,
        demand: &Demand,
        forecast: Forecast,
        prefix: Prefix,
        progress: Progress,
    ) -> Place {
        let Admission { call, relieved, shared, horizon } =
            self.admission(demand, forecast, prefix, progress);
        for (at, tokens) in relieved {
            if let Some(owner) = self.calls.get_mut(at).and_then(Option::as_mut) {
                owner.input = owner.input.saturating_sub(tokens);
            }
        }
        self.shared = self.shared.saturating_add(shared);
        self.horizon.add(&horizon);
        self.surveyed = self.surveyed.saturating_add(call.produced);
        self.room = None;
        let at = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.calls.len() - 1
        });
        for (hash, tokens) in call.prefix.chunks(call.whole, BLOCK as u64) {
            let fresh = Beginning { tokens, holders: 0, owner: Some(at) };
            let held = self.beginnings.entry(hash).or_insert(fresh);
            held.holders += 1;
            if held.holders > 1 {
                held.owner = None;
            }
        }
        if let Some(place) = self.calls.get_mut(at) {
            *place = Some(call);
        }
        Place { at }
    }

    /// Releases the memory of a call that has ended.
    pub fn release(&mut self, place: Place) {
        let Some(call) = self.calls.get_mut(place.at).and_then(Option::take) else { return };
        self.free.push(place.at);
        call.change(&mut self.horizon, -1.0);
        for (hash, _) in call.prefix.chunks(call.whole, BLOCK as u64) {
            let Some(held) = self.beginnings.get_mut(&hash) else { continue };
            held.holders -= 1;
            if held.holders == 0 {
                if held.owner.is_none() {
                    self.shared = self.shared.saturating_sub(held.tokens);
                    self.horizon.change_flat(-1.0, held.tokens as f64, 0.0);
                }
                self.beginnings.remove(&hash);
            }
        }
        self.surveyed = self.surveyed.saturating_sub(call.produced);
        self.room = None;
        if self.is_idle() {
            // Removes rounding errors.
            self.horizon.clear();
        }
    }

    /// Returns the state for snapshots and metrics.
    pub fn view(&self) -> View {
        let mut now = self.clone();
        now.survey();
        View {
            capacity: self.capacity,
            usable: self.usable,
            calls: now.calls.len() - now.free.len(),
            held: now.calls.iter().flatten().fold(self.shared, |held, call| {
                held.saturating_add(call.input).saturating_add(call.produced)
            }),
            peak: now.peak().ceil() as u64,
        }
    }

    /// Returns the changes that the admission of a call would make.
    fn admission(
        &self,
        demand: &Demand,
        forecast: Forecast,
        prefix: Prefix,
        progress: Progress,
    ) -> Admission {
        let forecast = forecast.now().or_exactly(demand.output);
        // No call can hold more than the capacity, whatever it claims.
        let whole = forecast.input().unwrap_or(demand.input).min(self.capacity);
        let mut input = whole;
        let (mut relieved, mut shared) = (Vec::<(usize, u64)>::new(), 0);
        for (hash, tokens) in prefix.chunks(whole, BLOCK as u64) {
            let Some(held) = self.beginnings.get(&hash) else { continue };
            // If the rest of the prompt has more tokens per byte, the prefix looks longer than it
            // is.
            input -= tokens.min(held.tokens);
            let Some(owner) = held.owner else { continue };
            shared += held.tokens;
            match relieved.iter_mut().find(|(at, _)| *at == owner) {
                Some((_, of_owner)) => *of_owner += held.tokens,
                None => relieved.push((owner, held.tokens)),
            }
        }
        let call = Call {
            input,
            prefix,
            whole,
            forecast: forecast.at_most(demand.max_output).at_most(Some(self.capacity)),
            produced: progress.tokens(),
            progress,
        };
        let mut horizon = Horizon::default();
        call.change(&mut horizon, 1.0);
        horizon.change_flat(1.0, shared as f64, 0.0);
        for (at, tokens) in &relieved {
            if let Some(owner) = self.calls.get(*at).and_then(Option::as_ref) {
                owner.change(&mut horizon, -1.0);
                owner.change_by(&mut horizon, 1.0, owner.input.saturating_sub(*tokens));
            }
        }
        Admission { call, relieved, shared, horizon }
    }

    fn is_idle(&self) -> bool {
        self.calls.len() == self.free.len()
    }

    fn peak(&self) -> f64 {
        self.horizon.peak_with(&Horizon::default(), CAUTION).max(0.0)
    }

    fn is_stale(&self) -> bool {
        let produced: u64 =
            self.calls.iter().flatten().map(|call| call.progress.tokens()).fold(0, u64::saturating_add);
        produced.saturating_sub(self.surveyed) >= STALE * (self.calls.len() - self.free.len()) as u64
            && !self.is_idle()
    }

    fn survey(&mut self) {
        self.horizon.clear();
        self.horizon.change_flat(1.0, self.shared as f64, 0.0);
        self.surveyed = 0;
        for call in self.calls.iter_mut().flatten() {
            // An answer never shrinks, whatever its observer reports.
            call.produced = call.produced.max(call.progress.tokens());
            self.surveyed = self.surveyed.saturating_add(call.produced);
            call.change(&mut self.horizon, 1.0);
        }
        self.room = None;
    }
}

impl Call {
    /// Adds or removes the surveyed use of the call.
    fn change(&self, horizon: &mut Horizon, sign: f64) {
        self.change_by(horizon, sign, self.input);
    }

    /// Like [`Self::change`], with `input` tokens counting for the call.
    fn change_by(&self, horizon: &mut Horizon, sign: f64, input: u64) {
        let remaining = self.forecast.remaining(self.produced);
        let held = input as f64 + self.produced as f64 + BLOCK / 2.0;
        if self.forecast.comes_in_one_piece() {
            let (mean, variance) = spread(&remaining);
            horizon.change_flat(sign, held + mean, variance);
        } else {
            horizon.change(sign, held, &remaining);
        }
    }
}

/// Returns the mean and the variance of the tokens still to come.
fn spread(remaining: &Remaining<'_>) -> (f64, f64) {
    let count = remaining.count() as f64;
    let mean = remaining.descending().map(f64::from).sum::<f64>() / count;
    let variance = remaining.descending().map(|left| (f64::from(left) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance)
}

fn small(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
