//! The adaptive limit as users get it, in virtual time: configured in a [`Gate`](tidegate::Gate),
//! and fed by the responses that the client sees.
//!
//! The first part is the burst of the post on per-tenant caps, with nothing configured and then
//! with one objective ([`burst`]). The second part replays scenarios of [`super::adaptive`] through
//! the client ([`replay`]), beside fixed caps in the same gate and the policy alone on the same
//! arrivals.

mod burst;
mod play;
mod replay;
mod server;
mod watch;

use clap::Args;
use tidegate_sim::scenario::Arrivals;

use crate::Fallible;
use crate::report::Report;
use crate::seeds::Seeds;

/// Prints a run instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// `burst`, or a part of a scenario's name. Prints the state of its gate during the run.
    #[arg(long)]
    scenario: Option<String>,
    #[arg(long, default_value_t = 101)]
    seed: u64,
    /// A part of the contender's name; only for `burst`.
    #[arg(long, default_value = "nothing set")]
    who: String,
    /// Uses independent arrivals; only for `burst`.
    #[arg(long)]
    poisson: bool,
}

impl Look {
    /// Returns `true` if a look was requested.
    pub(crate) fn wanted(&self) -> bool {
        self.scenario.is_some()
    }
}

/// Prints the run that `look` selects.
pub(crate) fn look(look: &Look) -> Fallible<String> {
    let wanted = look.scenario.as_deref().unwrap_or_default();
    if wanted == "burst" {
        let arrivals = if look.poisson { Arrivals::Poisson } else { Arrivals::Paced };
        burst::look(&look.who, arrivals, look.seed)?;
    } else {
        replay::look(wanted, look.seed)?;
    }
    Ok(String::new())
}

pub(crate) const BURST_SEEDS: Seeds = burst::SEEDS;
pub(crate) const REPLAY_SEEDS: Seeds = replay::SEEDS;

/// Runs the experiment and returns its report.
pub(crate) fn measure(burst: Seeds, replay: Seeds) -> Fallible<Report> {
    let mut report = Report::new("adaptive-gate", burst.into_iter().chain(replay));
    burst::measure(&mut report, burst)?;
    replay::measure(&mut report, replay)?;
    Ok(report)
}
