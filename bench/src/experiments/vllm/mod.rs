//! A real vLLM with chosen step times, behind the gate that users have: no cap is configured, and
//! the results are compared with those of the best fixed cap.
//!
//! `bench/vllm/run.py` installs vLLM, calls these experiments, and starts their servers. Without
//! `--managed`, an experiment runs in virtual time over the simulator with the same configuration
//! ([`engines`]), which takes seconds.

mod busy;
mod conditions;
mod contender;
mod default_limit;
mod engines;
mod knee;
mod load;
mod managed_servers;
mod objective;
mod pool;
mod preemptions;
mod run;
mod runner;
mod server_metrics;
mod shared;
mod sweeps;
mod tenant_rules;
mod tenants;
#[cfg(test)]
mod tests;
mod truth;

use std::time::Duration;

use clap::Args;

use crate::report::Report;

pub(crate) use self::busy::compute_in_bursts;
pub(crate) use self::default_limit::measure as measure_default;
pub(crate) use self::objective::measure as measure_objective;
pub(crate) use self::pool::{PoolArgs, measure as measure_pool};
pub(crate) use self::preemptions::measure as measure_kv;
pub(crate) use self::shared::measure as measure_shared;
pub(crate) use self::sweeps::{SweepArgs, measure as measure_sweep};
pub(crate) use self::tenants::measure as measure_tenants;
pub(crate) use self::truth::measure as measure_truth;

/// Options of the experiments on vLLM.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Request servers from the program that started this one, as `bench/vllm/run.py` expects.
    /// Without it, the simulator runs in virtual time.
    #[arg(long)]
    managed: bool,
    /// Duration of each run, in seconds, from 10 on.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=3_600))]
    seconds: u32,
    /// Run only the scenarios whose names contain this text.
    #[arg(long, default_value = "")]
    scenario: String,
}

impl Options {
    /// Returns the report of the experiment `name`. With the simulator it is named `simulated`,
    /// because such a result must not be stored as one of vLLM.
    fn report(&self, name: &'static str, seeds: impl IntoIterator<Item = u64>) -> Report {
        Report::new(if self.managed { name } else { "simulated" }, seeds)
    }

    fn lasts(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    fn includes(&self, scenario: &str) -> bool {
        scenario.contains(&self.scenario)
    }
}
