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
/// The duration of the simulated runs near the knee. In a shorter run, the number of calls in time
/// varies by more than neighbouring concurrencies differ.
const LASTS_LONG: Duration = Duration::from_secs(6_000);
const SEED: u64 = 9_999;
const HIGHEST: u64 = 48;

/// The quantile of the times to the first token that must meet the objective.
const QUANTILE: f64 = 0.95;
/// The share of the best goodput that is enough, as in the sweep's own search.
const ENOUGH: f64 = 0.98;

/// The share of the best goodput of a run of [`LASTS`] from which on a concurrency may be the knee.
const NEARLY_ENOUGH: f64 = 0.93;

/// What the knee of a server is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Knee {
    /// The maximum number of sequences of the engine. Without an objective, and with a KV cache
    /// that has room for all of them, further calls only wait.
    Sequences,
    /// The largest concurrency at which [`QUANTILE`] of the calls have their first token within
    /// this time, for an objective that calls miss only if they wait in the server.
    InTime(Duration),
    /// The smallest concurrency with [`ENOUGH`] of the best goodput: the calls per second that have
    /// their first token within this time, if any. This is what a sweep reports by its
    /// documentation.
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
        let runs = |from: u64, to: u64, lasts: Duration| {
            virtual_time::each(from..=to, |concurrency| {
                let plan = Plan::closed(concurrency as usize, lengths, lasts, SEED);
                simulate(engine, front_end, Contender::Stock, &plan)
            })
        };
        match self {
            Knee::Sequences => Ok(engine.max_num_seqs as usize),
            Knee::InTime(ttft) => {
                let limit = ttft.as_secs_f64() * 1e3;
                Ok(runs(1, HIGHEST, LASTS)?.iter().take_while(|run| run.ttft_ms(QUANTILE) <= limit).count())
            }
            Knee::Goodput(ttft) => {
                let goodput = |run: &Run| run.goodput(ttft.unwrap_or(Duration::MAX));
                let rates = |runs: Vec<Run>| runs.iter().map(goodput).collect::<Vec<f64>>();
                let best = |rates: &[f64]| rates.iter().fold(0.0f64, |best, rate| best.max(*rate));
                let rough = rates(runs(1, HIGHEST, LASTS)?);
                let is_near = |rate: &f64| *rate >= NEARLY_ENOUGH * best(&rough);
                let (Some(first), Some(last)) =
                    (rough.iter().position(is_near), rough.iter().rposition(is_near))
                else {
                    return Err("no call meets the objective".into());
                };
                let exact = rates(runs(1 + first as u64, 1 + last as u64, LASTS_LONG)?);
                Ok(1 + first + exact.iter().take_while(|rate| **rate < ENOUGH * best(&exact)).count())
            }
        }
    }
}
