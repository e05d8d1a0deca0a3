//! Memory for keys and values: how many tokens a self-hosted engine can hold at once, and how many the calls in flight will come to hold.
//!
//! Reserving the most that each call may produce packs almost nothing, since callers set it far above what they need; reserving nothing lets
//! in more than the engine can finish, which then evicts calls and computes them again. So a call is admitted by the *future peak*
//! (LightLLM's Past-Future scheduler, arXiv 2507.10150): from what each call in flight has produced ([`Progress`]) and how long it may become
//! ([`Forecast`]), what all of them will hold together at each moment at which one of them may end, and the largest of these.
//!
//! Lengths are not known but likely. The paper draws one for each call; here what is held at a moment is a sum of independent guesses, with
//! a mean and a standard deviation, and the peak is taken of the mean and `CAUTION` times the deviation. Many calls make up for each other,
//! so that no call pays for its own worst case. What is wrong with all forecasts alike is what the headroom is for.
//!
//! # Promises
//! - A call fits if the peak with this call stays within what is usable. The call counts with the forecast that is made
//!   when it is considered; a call that ends before the peak takes nothing of it.
//! - An admission that shares nothing never lowers the peak; a release never raises it.
//! - A call is admitted to an idle engine whenever it can be held at all; what is admitted is given back by [`Kv::release`], once.
//! - Where lengths are certain, the peak is the exact one or above it, by no more than a sixteenth of what is still to come.
//!
//! # Prefix caching
//! An engine with prefix caching holds the blocks that several running calls share once. A call therefore needs its input less the
//! beginnings that calls in flight hold already ([`Prefix`]). A beginning that more than one call has held counts once, at
//! every moment to come, until the last of these calls ends. Blocks that are cached and that no running call uses are free
//! memory, since the engine evicts them when it needs room: they save nothing.
//!
//! # What it does not know
//! - What others send to the same engine. Give each its part of `kv_tokens`.
//! - How far an answer that comes in one piece has come: it counts with its whole expected length from the beginning.
//!
//! Whether a call fits is found in one pass over some hundred moments. [`Kv::room`] is an upper bound of the prompts that
//! fit, so that most calls that do not fit need no such pass. The calls are surveyed anew when they have produced `STALE`
//! tokens each.

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

/// How many standard deviations the peak stands above its mean. Chosen by the experiment `kv`, with the headroom's default, on seeds that it does
/// not report.
const CAUTION: f64 = 1.25;

/// How many tokens the calls may have produced, in the mean, before they are surveyed anew. Less than a block.
const STALE: u64 = 8;

/// What sums of rounded numbers may be off by, in tokens.
const ROUNDING: f64 = 1e-6;

/// Tokens in a block, the engine's unit of memory: vLLM's default. A call wastes half of its last one, in the mean.
const BLOCK: f64 = 16.0;

/// A call's place in the memory. Goes back by [`Kv::release`], once.
#[derive(Debug)]
#[must_use = "a place that is not released is lost"]
pub struct Place {
    at: usize,
}

/// The books of one engine's memory.
#[derive(Clone, Debug)]
pub struct Kv {
    capacity: u64,
    usable: u64,
    calls: Vec<Option<Call>>,
    free: Vec<usize>,
    /// The beginnings of prompts that calls in flight hold, by their hashes.
    beginnings: HashMap<u64, Beginning>,
    /// Tokens of the beginnings that more than one call has held.
    shared: u64,
    horizon: Horizon,
    /// What they had produced when they were surveyed, all together.
    surveyed: u64,
    /// The longest prompt that may fit into the horizon as it is, where that was asked.
    room: Option<u32>,
}

/// What there is and what is taken, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What the engine holds.
    pub capacity: u64,
    /// What of that may be taken: less the headroom.
    pub usable: u64,
    /// Calls in flight.
    pub calls: usize,
    /// What they hold now, as far as it is seen; what several of them share, once.
    pub held: u64,
    /// What they will come to hold.
    pub peak: u64,
}

/// A beginning of a prompt that calls in flight hold.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// What it adds to the one before.
    tokens: u64,
    holders: usize,
    /// The call that it counts for; `None` once it has had another holder: then it counts by itself.
    owner: Option<usize>,
}

/// What an admission changes.
struct Admission {
    call: Call,
    /// The calls that do not count any more for what they share with this one, and how many tokens that is.
    relieved: Vec<(usize, u64)>,
    /// The same of all of them.
    shared: u64,
    /// All that it adds.
    horizon: Horizon,
}

#[derive(Clone, Debug)]
struct Call {
    /// What counts for this call alone.
    input: u64,
    prefix: Prefix,
    /// Tokens of the whole prompt.
    whole: u64,
    forecast: Forecast,
    progress: Progress,
    /// What it had produced when it was surveyed.
    produced: u64,
}

impl Kv {
    /// An engine that holds so many tokens, of which the share `headroom` is kept free.
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

    /// Returns what a call needs at least, to compare with [`Kv::room`]: its input. What its answer adds is known better when it
    /// is considered than when it came: calls that came when nothing was known would each ask for their `max_tokens`.
    pub fn need(&self, demand: &Demand) -> u32 {
        small(if demand.input <= self.capacity { demand.input.min(self.usable) } else { demand.input })
    }

    /// Returns the most input that one more call may have: no call that needs more fits, unless it shares its beginning with one in
    /// flight. Of those that need less, [`Kv::fits`] tells which fit. Surveys the calls in flight where that is due.
    pub fn room(&mut self) -> u32 {
        if self.is_idle() {
            return small(self.usable);
        }
        if self.is_stale() {
            self.survey();
        }
        // Every call in flight, and the new one, produces one more token at least.
        let (usable, horizon) = (self.usable as f64, &self.horizon);
        let free = || usable - horizon.soon(CAUTION) - BLOCK / 2.0 - 1.0;
        *self.room.get_or_insert_with(|| small((free() + ROUNDING).max(0.0) as u64))
    }

    /// Returns whether a call that may become as long as the forecast says fits now, by the last survey. An idle engine takes
    /// whatever it can hold.
    pub fn fits(&self, demand: &Demand, forecast: &Forecast, prefix: &Prefix) -> bool {
        self.slack(demand, forecast, prefix) >= 0.0
    }

    /// Returns how many tokens stay usable at the peak with this call; below zero, the call does not fit.
    pub fn slack(&self, demand: &Demand, forecast: &Forecast, prefix: &Prefix) -> f64 {
        if self.is_idle() {
            return if demand.input <= self.capacity { self.usable as f64 } else { f64::NEG_INFINITY };
        }
        let admission = self.admission(demand, forecast.clone(), prefix.clone(), Progress::default());
        self.usable as f64 - self.horizon.peak_with(&admission.horizon, CAUTION) + ROUNDING
    }

    /// Returns the longest prompt that may fit, in tokens: no longer one does.
    pub fn longest(&mut self) -> u32 {
        let room = self.room();
        if room >= small(self.usable) { small(self.capacity) } else { room }
    }

    /// The engine turns out to hold so many tokens. The calls in flight stay where they are.
    pub fn resize(&mut self, capacity: u64, headroom: f64) {
        self.capacity = capacity;
        self.usable = (capacity as f64 * (1.0 - headroom)) as u64;
        self.survey();
    }

    /// The most that any call may hold, however idle the engine is.
    pub fn most(&self) -> u64 {
        self.capacity
    }

    /// A call is admitted whose length is as certain as its demand; `progress` says how far its answer has come.
    pub fn admit(&mut self, demand: &Demand, progress: Progress) -> Place {
        self.admit_expecting(demand, Forecast::default(), Prefix::default(), progress)
    }

    /// A call is admitted that may become as long as the forecast says, and never longer than its demand allows.
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

    /// It has ended.
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
            // What rounding has left.
            self.horizon.clear();
        }
    }

    /// What a person would want to know.
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

    /// Returns what the admission of a call would change.
    fn admission(
        &self,
        demand: &Demand,
        forecast: Forecast,
        prefix: Prefix,
        progress: Progress,
    ) -> Admission {
        let forecast = forecast.now().or_exactly(demand.output);
        // No call can hold more than there is, whatever it says of itself.
        let whole = forecast.input().unwrap_or(demand.input).min(self.capacity);
        let mut input = whole;
        let (mut relieved, mut shared) = (Vec::<(usize, u64)>::new(), 0);
        for (hash, tokens) in prefix.chunks(whole, BLOCK as u64) {
            let Some(held) = self.beginnings.get(&hash) else { continue };
            // A rest with more tokens for its bytes makes the beginning look longer than it is.
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
            // An answer does not shrink, whatever its observer says.
            call.produced = call.produced.max(call.progress.tokens());
            self.surveyed = self.surveyed.saturating_add(call.produced);
            call.change(&mut self.horizon, 1.0);
        }
        self.room = None;
    }
}

impl Call {
    /// Adds what it holds and will hold, as it was surveyed, or takes the same out.
    fn change(&self, horizon: &mut Horizon, sign: f64) {
        self.change_by(horizon, sign, self.input);
    }

    /// The same, with `input` counting for it.
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

/// Mean and variance of what is to come.
fn spread(remaining: &Remaining<'_>) -> (f64, f64) {
    let count = remaining.count() as f64;
    let mean = remaining.descending().map(f64::from).sum::<f64>() / count;
    let variance = remaining.descending().map(|left| (f64::from(left) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance)
}

fn small(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
