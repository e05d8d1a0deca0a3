//! The limit that finds itself, as users get it: configured in a [`Gate`](tidegate::Gate), learning from what the client sees of real responses, in virtual time.
//!
//! First the burst of the post on per-tenant caps, with nothing configured and then with one objective ([`burst`]). Then scenarios of the suite
//! ([`super::adaptive`]) replayed through the client ([`replay`]), beside fixed caps in the same gate and the policy by itself on the same arrivals.

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

/// What to look at, instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// `burst`, or a part of a scenario's name: what its gate shows, second by second.
    #[arg(long)]
    scenario: Option<String>,
    #[arg(long, default_value_t = 101)]
    seed: u64,
    /// Of `burst`: a part of the contender's name.
    #[arg(long, default_value = "nothing set")]
    who: String,
    /// Of `burst`: arrivals that are independent of each other.
    #[arg(long)]
    poisson: bool,
}

impl Look {
    pub(crate) fn wanted(&self) -> bool {
        self.scenario.is_some()
    }
}

/// Prints it.
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

pub(crate) fn measure(burst: Seeds, replay: Seeds) -> Fallible<Report> {
    let mut report = Report::new("adaptive-gate", burst.into_iter().chain(replay));
    burst::measure(&mut report, burst)?;
    replay::measure(&mut report, replay)?;
    Ok(report)
}
