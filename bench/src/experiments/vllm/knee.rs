//! The true knee of a server: the concurrency that a sweep should answer.

use std::time::Duration;

use tidegate_sim::engine::EngineConfig;

use super::contender::Contender;
use super::load::{Lengths, Plan};
use super::run::Run;
use super::runner::simulate;
use crate::{Fallible, virtual_time};

/// The duration of each simulated run, its seed, and the highest concurrency that is simulated.
const LASTS: Duration = Duration::from_secs(300);
const SEED: u64 = 9_999;
const HIGHEST: u64 = 48;

/// The quantile of the times to the first token that must meet the objective.
const QUANTILE: f64 = 0.95;
/// The share of the best goodput that is enough, as in the sweep's own search.
const ENOUGH: f64 = 0.98;

/// What the knee of a server is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Knee {
    /// The maximum number of sequences of the engine. Without an objective, and with a KV cache that
    /// has room for all of them, further calls only wait.
    Sequences,
    /// The largest concurrency at which [`QUANTILE`] of the calls have their first token within this
    /// time, for an objective that calls miss only if they wait in the server.
    InTime(Duration),
    /// The smallest concurrency with [`ENOUGH`] of the best goodput: the calls per second that have
    /// their first token within this time, if any. This is what a sweep reports by its documentation.
    Goodput(Option<Duration>),
}

impl Knee {
    /// Returns the objective that the sweep is given, if any.
    pub(super) const fn objective(self) -> Option<Duration> {
        match self {
            Knee::Sequences => None,
            Knee::InTime(ttft) => Some(ttft),
            Knee::Goodput(ttft) => ttft,
        }
    }

    /// Returns the true knee of `engine` for calls of the given lengths. Except for
    /// [`Knee::Sequences`], simulates all concurrencies up to [`HIGHEST`], each in a closed loop
    /// without a gate. Responses are delayed by `front_end`, the latency of the server's HTTP front
    /// end.
    pub(super) fn find(
        self,
        engine: &EngineConfig,
        lengths: Lengths,
        front_end: Duration,
    ) -> Fallible<usize> {
        let runs = || {
            virtual_time::each(1..=HIGHEST, |concurrency| {
                let plan = Plan::closed(concurrency as usize, lengths, LASTS, SEED);
                simulate(engine, front_end, Contender::Stock, &plan)
            })
        };
        match self {
            Knee::Sequences => Ok(engine.max_num_seqs as usize),
            Knee::InTime(ttft) => {
                let limit = ttft.as_secs_f64() * 1e3;
                Ok(runs()?.iter().take_while(|run| run.ttft_ms(QUANTILE) <= limit).count())
            }
            Knee::Goodput(ttft) => {
                let goodput = |run: &Run| run.goodput(ttft.unwrap_or(Duration::MAX));
                let rates: Vec<f64> = runs()?.iter().map(goodput).collect();
                let best = rates.iter().fold(0.0f64, |best, rate| best.max(*rate));
                Ok(1 + rates.iter().take_while(|rate| **rate < ENOUGH * best).count())
            }
        }
    }
}
