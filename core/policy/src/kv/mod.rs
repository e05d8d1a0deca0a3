//! KV-cache memory: how many tokens a self-hosted engine can hold at the same time, and how many
//! the calls in flight will hold.
//!
//! # Algorithm
//!
//! A call is admitted by the *future peak*, as in LightLLM's Past-Future scheduler (arXiv
//! 2507.10150). The output so far ([`Progress`]) and the possible lengths ([`Forecast`]) of each
//! call in flight give the memory that all calls will use at each future step at which one of them
//! may end. The peak is the maximum over these steps.
//!
//! Lengths are known only as distributions. The paper draws one length per call. Here, memory use
//! is a sum of independent lengths with a mean and a standard deviation, and the peak is the mean
//! plus `CAUTION` standard deviations. Deviations of many calls cancel out, so no call is charged
//! its own worst case. The headroom covers errors that all forecasts share.
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
//! - Calls of other clients of the same engine are known only as far as the engine reports its use
//!   ([`Kv::calibrate`]). Otherwise, give each client its share of `kv_tokens`.
//! - The progress of an answer that arrives in one piece is not known: its whole expected length
//!   counts from the start.
//!
//! Checking whether a call fits takes one pass over about a hundred steps. [`Kv::available`] is an
//! upper bound of the prompts that fit, which saves that pass for most calls that do not fit. The
//! memory use is calculated again when the calls have produced `MAX_UNSURVEYED` tokens each, on
//! average.

mod length_forecast;
mod memory_cost;
mod memory_forecast;
mod output_progress;
#[cfg(test)]
mod tests;

pub use length_forecast::Forecast;
pub use memory_cost::{actual_cost, expected_cost};
pub use output_progress::Progress;
pub use tidegate_protocol::request::Prefix;

use std::collections::HashMap;

use crate::saturate;
use memory_forecast::Horizon;
use slab::Slab;
use tidegate_tokens::Demand;

/// Number of standard deviations that are added to the mean memory use. Chosen together with the
/// default headroom, in runs of the benchmark experiment `kv` with random seeds other than those of
/// its reported results.
const CAUTION: f64 = 1.75;

/// Mean number of output tokens per call after which memory use is calculated again. Less than a
/// block.
const MAX_UNSURVEYED: u64 = 8;

/// Number of calls in flight from which their mean memory is taken for that of other calls.
const MIN_TYPICAL_CALLS: usize = 8;

/// Weight of a new report in the moving average of the tokens that predictions leave out.
const CALIBRATION_WEIGHT: f64 = 0.5;
/// Tolerance for rounding errors of sums, in tokens.
const ROUNDING: f64 = 1e-6;

/// Number of tokens in a block, which is the unit of allocation of the engine (the default of
/// vLLM). On average, a call wastes half of its last block.
const BLOCK: f64 = 16.0;

/// The memory of one admitted call. Pass it to [`Kv::release`] when the call ends.
#[derive(Debug)]
#[must_use = "memory that is not released stays reserved"]
pub struct KvReservation(usize);

/// The KV-cache memory of one inference engine, with the calls in flight. All amounts are tokens.
#[derive(Clone, Debug, Default)]
pub struct Kv {
    capacity: u64,
    usable: u64,
    /// Tokens that the engine holds in addition to those of the calls in flight: those of other
    /// clients, and errors of the estimates. Negative if the engine holds fewer, because calls
    /// share prefixes. See [`Kv::calibrate`].
    unaccounted: f64,
    calls: Slab<Call>,
    /// The prefixes of the prompts of all calls in flight, by hash.
    prefixes: HashMap<u64, HeldPrefix>,
    /// Sum of the tokens of all prefixes that more than one call has held, each counted once.
    shared: u64,
    /// Memory use of all calls in flight at each future step.
    horizon: Horizon,
    /// Tokens that the calls in flight had produced when `horizon` was last calculated.
    surveyed: u64,
    /// The result of [`Kv::available`] for the current `horizon`. `None` if not calculated yet.
    max_available: Option<u32>,
}

/// The state of an engine's memory, for snapshots and metrics. All amounts are tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvView {
    /// Memory of the engine, in tokens.
    pub capacity: u64,
    /// Memory that calls may use: the capacity without the headroom.
    pub usable: u64,
    /// Number of calls in flight.
    pub calls: usize,
    /// Memory in use now, in tokens, as far as is observed. Shared prefixes count once.
    pub held: u64,
    /// Maximum memory use that is predicted for the calls in flight.
    pub peak: u64,
}

/// A prompt prefix of at least one call in flight.
#[derive(Clone, Copy, Debug)]
struct HeldPrefix {
    /// Tokens by which this prefix is longer than the previous one of the same prompt.
    tokens: u64,
    /// Number of calls in flight with this prefix.
    holders: usize,
    /// The call whose memory use includes the prefix. `None` after a second call had the prefix:
    /// then it is part of `Kv::shared`.
    owner: Option<usize>,
}

/// The changes to the state of a [`Kv`] that the admission of a call makes.
struct Admission {
    call: Call,
    /// Calls whose prefixes become shared: the index of each call, and the number of tokens that
    /// its own memory use no longer includes.
    relieved: Vec<(usize, u64)>,
    /// The memory use that the admission adds.
    horizon: Horizon,
}

/// A call in flight, with what is needed to predict its memory use.
#[derive(Clone, Debug)]
struct Call {
    /// Prompt tokens without the shared prefixes.
    input: u64,
    prefix: Prefix,
    /// All prompt tokens.
    prompt: u64,
    forecast: Forecast,
    progress: Progress,
    /// Output tokens when the memory use was last calculated.
    produced: u64,
}

impl Kv {
    /// Creates the memory of an idle engine that can hold `capacity` tokens. The fraction
    /// `headroom` (0 to 1) of it is left unused.
    pub fn new(capacity: u64, headroom: f64) -> Self {
        let mut kv = Self::default();
        kv.resize(capacity, headroom);
        kv
    }

    /// Returns the minimum memory of a call in tokens, to compare with [`Kv::available`]: its
    /// prompt tokens, but at most the usable memory if the prompt fits into the capacity. The
    /// output is not included, because its length is known better at admission.
    pub fn need(&self, demand: &Demand) -> u32 {
        saturate(if demand.input <= self.capacity { demand.input.min(self.usable) } else { demand.input })
    }

    /// Returns an upper bound on the prompt tokens of one more call. A call with a longer prompt
    /// does not fit, unless it shares a prefix with a call in flight. For others, [`Kv::fits`]
    /// decides.
    ///
    /// Calculates the memory use again if the calls in flight have produced enough tokens since.
    pub fn available(&mut self) -> u32 {
        if self.calls.is_empty() {
            return saturate(self.usable);
        }
        let produced = self.calls.iter().map(|(_, call)| call.progress.tokens()).fold(0, u64::saturating_add);
        if produced.saturating_sub(self.surveyed) >= MAX_UNSURVEYED * self.calls.len() as u64 {
            self.survey();
        }
        // Each call in flight, and the new one, produces at least one more token.
        let (usable, horizon) = (self.usable as f64 - self.unaccounted, &self.horizon);
        let free = || usable - horizon.next_step(CAUTION) - BLOCK / 2.0 - 1.0;
        *self.max_available.get_or_insert_with(|| saturate((free() + ROUNDING).max(0.0) as u64))
    }

    /// Returns `true` if a call with this forecast and prefix fits. Uses the memory use as last
    /// calculated by [`Kv::available`]. An idle engine admits any call up to its capacity.
    pub fn fits(&self, demand: &Demand, forecast: &Forecast, prefix: &Prefix) -> bool {
        self.slack(demand, forecast, prefix) >= 0.0
    }

    /// Returns the usable memory, in tokens, that is left at the predicted peak if this call is
    /// admitted. Negative if the call does not fit. On an idle engine, this is the whole usable
    /// memory, or negative infinity if the prompt exceeds the capacity.
    pub fn slack(&self, demand: &Demand, forecast: &Forecast, prefix: &Prefix) -> f64 {
        if self.calls.is_empty() {
            return if demand.input <= self.capacity { self.usable as f64 } else { f64::NEG_INFINITY };
        }
        let admission = self.preview(demand, forecast.clone(), prefix.clone(), Progress::default());
        let usable = self.usable as f64 - self.unaccounted;
        usable - self.horizon.peak_with(&admission.horizon, CAUTION) + ROUNDING
    }

    /// Returns an upper bound on the prompt tokens of one more call: [`Kv::available`], or the
    /// whole capacity if the engine is idle.
    pub fn max_prompt(&mut self) -> u32 {
        let max_available = self.available();
        if max_available >= saturate(self.usable) { saturate(self.capacity) } else { max_available }
    }

    /// Returns how many calls like those in flight fit into the usable memory at the same time.
    /// `None` if fewer than eight are in flight, because the next ones may differ from them.
    ///
    /// Uses the memory use as last calculated by [`Kv::available`].
    pub fn max_calls(&self) -> Option<usize> {
        let (calls, usable) = (self.calls.len(), self.usable as f64 - self.unaccounted);
        (calls >= MIN_TYPICAL_CALLS).then(|| (calls as f64 * usable / self.peak().max(1.0)) as usize)
    }

    /// Changes the capacity and the headroom (0 to 1). The calls in flight are kept, even if they
    /// no longer fit.
    pub fn resize(&mut self, capacity: u64, headroom: f64) {
        self.capacity = capacity;
        self.usable = (capacity as f64 * (1.0 - headroom)) as u64;
        self.survey();
    }

    /// Corrects the predictions by what the engine reports: it holds `held` tokens for the calls of
    /// all clients. `is_short` is `true` if calls wait in the engine: then it may hold less than
    /// its calls need, and the report corrects the predictions only upwards.
    pub fn calibrate(&mut self, held: u64, is_short: bool) {
        let error = held as f64 - self.held() as f64;
        let more = CALIBRATION_WEIGHT * (error - self.unaccounted);
        if more > 0.0 || !is_short {
            self.unaccounted += more;
            self.max_available = None;
        }
    }

    /// Forgets what [`Kv::calibrate`] has corrected, because the reports are out of date: other
    /// clients may have left.
    pub(crate) fn forget_report(&mut self) {
        self.unaccounted = 0.0;
        self.max_available = None;
    }

    /// Returns the number of tokens that the engine can hold, which is also the maximum for one
    /// call on an idle engine.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Reserves memory for a call, without a check whether the call fits. `forecast` is limited to
    /// the maximum output of `demand`, and `progress` counts the output tokens that are produced
    /// later.
    pub fn admit(
        &mut self,
        demand: &Demand,
        forecast: Forecast,
        prefix: Prefix,
        progress: Progress,
    ) -> KvReservation {
        let Admission { call, relieved, horizon } = self.preview(demand, forecast, prefix, progress);
        for (owner, tokens) in relieved {
            if let Some(owner) = self.calls.get_mut(owner) {
                owner.input = owner.input.saturating_sub(tokens);
            }
            self.shared = self.shared.saturating_add(tokens);
        }
        self.horizon.add(&horizon);
        self.surveyed = self.surveyed.saturating_add(call.produced);
        self.max_available = None;
        let owner = Some(self.calls.vacant_key());
        for (hash, tokens) in call.prefix.chunks(call.prompt, BLOCK as u64) {
            let held = self.prefixes.entry(hash).and_modify(|held| held.owner = None);
            held.or_insert(HeldPrefix { tokens, holders: 0, owner }).holders += 1;
        }
        KvReservation(self.calls.insert(call))
    }

    /// Releases the memory of a call that has ended.
    pub fn release(&mut self, reservation: KvReservation) {
        let Some(call) = self.calls.try_remove(reservation.0) else { return };
        call.change(&mut self.horizon, -1.0);
        for (hash, _) in call.prefix.chunks(call.prompt, BLOCK as u64) {
            let Some(held) = self.prefixes.get_mut(&hash) else { continue };
            held.holders -= 1;
            if held.holders == 0 {
                if held.owner.is_none() {
                    self.shared = self.shared.saturating_sub(held.tokens);
                    self.horizon.change_constant(-1.0, held.tokens as f64, 0.0);
                }
                self.prefixes.remove(&hash);
            }
        }
        self.surveyed = self.surveyed.saturating_sub(call.produced);
        self.max_available = None;
        if self.calls.is_empty() {
            // Removes rounding errors.
            self.horizon.clear();
        }
    }

    /// Returns the current state, for snapshots and metrics.
    pub fn view(&self) -> KvView {
        let mut now = self.clone();
        now.survey();
        KvView {
            capacity: self.capacity,
            usable: self.usable,
            calls: now.calls.len(),
            held: self.held(),
            peak: now.peak().ceil() as u64,
        }
    }

    /// Returns the memory in use now, in tokens, as far as is observed. Shared prefixes count once.
    fn held(&self) -> u64 {
        self.calls.iter().fold(self.shared, |held, (_, call)| {
            held.saturating_add(call.input).saturating_add(call.latest_output())
        })
    }

    /// Returns the changes that the admission of this call would make.
    fn preview(&self, demand: &Demand, forecast: Forecast, prefix: Prefix, progress: Progress) -> Admission {
        let forecast = forecast.resolve().or_exact(demand.output);
        // No call can hold more than the capacity, whatever it claims.
        let prompt = forecast.input.unwrap_or(demand.input).min(self.capacity);
        let mut input = prompt;
        let mut relieved = Vec::<(usize, u64)>::new();
        for (hash, tokens) in prefix.chunks(prompt, BLOCK as u64) {
            let Some(held) = self.prefixes.get(&hash) else { continue };
            // If the rest of the prompt has more tokens per byte, the prefix looks longer than it
            // is.
            input -= tokens.min(held.tokens);
            let Some(owner) = held.owner else { continue };
            match relieved.iter_mut().find(|(at, _)| *at == owner) {
                Some((_, of_owner)) => *of_owner += held.tokens,
                None => relieved.push((owner, held.tokens)),
            }
        }
        let call = Call {
            input,
            prefix,
            prompt,
            forecast: forecast.at_most(demand.max_output).at_most(Some(self.capacity)),
            produced: progress.tokens(),
            progress,
        };
        let mut horizon = Horizon::default();
        call.change(&mut horizon, 1.0);
        let shared: u64 = relieved.iter().map(|(_, tokens)| tokens).sum();
        horizon.change_constant(1.0, shared as f64, 0.0);
        for (owner, tokens) in &relieved {
            if let Some(owner) = self.calls.get(*owner) {
                owner.change(&mut horizon, -1.0);
                owner.change_by(&mut horizon, 1.0, owner.input.saturating_sub(*tokens));
            }
        }
        Admission { call, relieved, horizon }
    }

    fn peak(&self) -> f64 {
        self.horizon.peak_with(&Horizon::default(), CAUTION).max(0.0)
    }

    /// Calculates the memory use of all calls in flight from their current progress.
    fn survey(&mut self) {
        self.horizon.clear();
        self.horizon.change_constant(1.0, self.shared as f64, 0.0);
        self.surveyed = 0;
        for (_, call) in &mut self.calls {
            call.produced = call.latest_output();
            self.surveyed = self.surveyed.saturating_add(call.produced);
            call.change(&mut self.horizon, 1.0);
        }
        self.max_available = None;
    }
}

impl Call {
    /// Returns the output tokens so far. An answer never shrinks, whatever its observer reports.
    fn latest_output(&self) -> u64 {
        self.produced.max(self.progress.tokens())
    }

    /// Adds the memory use of the call to `horizon` (`sign` 1), or subtracts it (-1).
    fn change(&self, horizon: &mut Horizon, sign: f64) {
        self.change_by(horizon, sign, self.input);
    }

    /// Adds (`sign` 1) or subtracts (-1) the memory use that the call would have with `input`
    /// prompt tokens.
    fn change_by(&self, horizon: &mut Horizon, sign: f64, input: u64) {
        let remaining = self.forecast.remaining(self.produced);
        let held = input as f64 + self.produced as f64 + BLOCK / 2.0;
        if self.forecast.non_streaming {
            let (mean, variance) = spread(remaining);
            horizon.change_constant(sign, held + mean, variance);
        } else {
            horizon.change(sign, held, remaining);
        }
    }
}

/// Returns the mean and the variance of the remaining output tokens.
fn spread(remaining: impl Iterator<Item = u32> + Clone) -> (f64, f64) {
    let count = remaining.clone().count() as f64;
    let remaining = remaining.map(f64::from);
    let mean = remaining.clone().sum::<f64>() / count;
    let variance = remaining.map(|left| (left - mean).powi(2)).sum::<f64>() / count;
    (mean, variance)
}
