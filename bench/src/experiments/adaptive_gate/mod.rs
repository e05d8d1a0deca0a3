//! The adaptive limit as users get it, in virtual time: configured in a [`Gate`](tidegate::Gate),
//! and fed by the responses that the client sees.
//!
//! The first part is the burst of the post on per-tenant caps, with nothing configured and then
//! with one objective ([`burst`]). The second part replays scenarios of [`super::adaptive`] through
//! the client ([`replay`]). Its results are compared with those of fixed caps in the same gate, and
//! with those of the adaptive limit alone, without a gate, on the same arrivals.

mod burst;
mod print_limit;
mod replay;
mod run_client;
mod simulator_config;

use clap::Args;
use tidegate_sim::scenario::Arrivals;

use crate::Fallible;
use crate::report::Report;
use crate::seeds::Seeds;

/// Options that print one run instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Print a run of `burst`, or of the scenarios whose names contain this text, with the state of
    /// the gate.
    #[arg(long)]
    scenario: Option<String>,
    #[arg(long, default_value_t = 101)]
    seed: u64,
    /// Use the first configuration whose name contains this text. Only for `burst`.
    #[arg(long, default_value = "nothing set")]
    who: String,
    /// Use Poisson arrivals instead of paced ones. Only for `burst`.
    #[arg(long)]
    poisson: bool,
}

impl Inspect {
    /// Returns `true` if `--scenario` was given, so that a run is printed instead of measured.
    pub(crate) fn is_requested(&self) -> bool {
        self.scenario.is_some()
    }
}

/// Prints the selected run. Returns an empty text, because everything was printed already.
pub(crate) fn inspect(inspect: &Inspect) -> Fallible<String> {
    let name_part = inspect.scenario.as_deref().unwrap_or_default();
    if name_part == "burst" {
        let arrivals = if inspect.poisson { Arrivals::Poisson } else { Arrivals::Paced };
        burst::inspect(&inspect.who, arrivals, inspect.seed)?;
    } else {
        replay::inspect(name_part, inspect.seed)?;
    }
    Ok(String::new())
}

pub(crate) const BURST_SEEDS: Seeds = burst::SEEDS;
pub(crate) const REPLAY_SEEDS: Seeds = replay::SEEDS;

/// Simulates the burst on the seeds `burst`, and the replayed scenarios on the seeds `replay`.
/// Returns the report.
pub(crate) fn measure(burst: Seeds, replay: Seeds) -> Fallible<Report> {
    let mut report = Report::new("adaptive-gate", burst.into_iter().chain(replay));
    burst::measure(&mut report, burst)?;
    replay::measure(&mut report, replay)?;
    Ok(report)
}
