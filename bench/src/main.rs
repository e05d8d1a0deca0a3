//! The experiment behind every figure that Tidegate claims.
//!
//! `cargo run --release -p tidegate-bench -- NAME` prints its progress to stderr, and as the last line of stdout one JSON object. It
//! exits with 0 when it could measure, whatever it found. How each experiment is done is told in `bench/README.md`.

mod experiments;
mod files;
mod freeze;
mod lengths;
mod naive;
mod peers;
mod provider;
mod render;
mod report;
mod seeds;
mod text;
mod traces;
mod traffic;
mod upstream;
mod virtual_time;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use experiments as run;

/// What may fail here is the measuring, not the measured.
pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures what Tidegate claims.
#[derive(Debug, Parser)]
enum Command {
    /// The post's three tables, in virtual time.
    NoisyNeighbour,
    /// An upstream that is down for a minute, in virtual time.
    Outage,
    /// Callers that go away, at every stage: virtual time and real sockets.
    Cancel,
    /// Who gets how much, beside other ways to choose and a fluid oracle.
    Fairness,
    /// An hour of a flood, and those whom it must not starve.
    Starvation,
    /// Whether a call ever waits that could go, by brute force.
    WorkConserving,
    /// What admission costs with a hundred thousand calls waiting, and what they take in memory.
    Scale,
    /// A process of its own for `scale`.
    #[command(hide = true)]
    ScaleMemory { held: run::scale::Held },
    /// What one admission costs.
    HotPath,
    /// Forty callers and four slots, over real sockets.
    Cap,
    /// A window of 429s with Retry-After, in virtual time.
    Cooldown,
    /// The faults of the background post's controller, each reproduced, and cured, in virtual time.
    AimdHistory,
    /// Three times normal traffic for ten minutes, in virtual time.
    Burst,
    /// Memory for keys and values: future peak against reservation, no reservation and an oracle, in virtual time.
    Kv,
    /// How much of a token quota is used, and how many 429s it costs, in virtual time.
    Tokens,
    /// The limit that finds itself, beside an oracle and other controllers, in virtual time.
    Adaptive(run::adaptive::Look),
    /// The same limit as users get it, through the client, in virtual time.
    AdaptiveGate(run::adaptive_gate::Look),
    /// Eight replicas with prefix caches: ours beside other ways to choose one and an oracle, in virtual time.
    Pool(run::pool::Look),
    /// `tidegate sweep` against servers whose best cap is known, in virtual time.
    Sweep(run::sweep::Look),
    /// A replica that is killed, and one that hangs, over real sockets.
    Failover,
    /// Sixty-four clients that start at once, and how unevenly their calls fall.
    Herd,
    /// What an open stream costs in memory, over real sockets.
    Memory,
    /// The upstream of `memory`, in a process of its own.
    #[command(hide = true)]
    MemoryServer,
    /// The client of `memory`, in a process of its own.
    #[command(hide = true)]
    MemoryClient { client: run::memory::Client, url: String, streams: usize },
    /// Records the figures of experiments in virtual time on a few seeds, or compares them with the
    /// recorded ones.
    Freeze(freeze::Freeze),
    /// Turns a file of result lines into a table.
    Render {
        /// JSON objects, one a line; of several with one name the last counts.
        results: PathBuf,
    },
}

fn main() -> ExitCode {
    match execute(Command::parse()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Fallible<String> {
    // It would override the mode of every gate here, and with it the figures.
    if std::env::var_os("TIDEGATE").is_some() {
        return Err("unset TIDEGATE first".into());
    }
    let report = match command {
        Command::Freeze(what) => return freeze::freeze(&what),
        Command::Render { results } => return render::table(&std::fs::read_to_string(results)?),
        Command::MemoryServer => return run::memory::serve(),
        Command::MemoryClient { client, url, streams } => return run::memory::hold(client, &url, streams),
        Command::ScaleMemory { held } => return run::scale::hold(held),
        Command::Adaptive(look) if look.wanted() => return run::adaptive::look(&look),
        Command::Adaptive(_) => {
            run::adaptive::measure(run::adaptive::SEEDS, Some(&files::folder("adaptive")))?
        }
        Command::AdaptiveGate(look) if look.wanted() => return run::adaptive_gate::look(&look),
        Command::AdaptiveGate(_) => {
            run::adaptive_gate::measure(run::adaptive_gate::BURST_SEEDS, run::adaptive_gate::REPLAY_SEEDS)?
        }
        Command::Pool(look) if look.wanted() => return run::pool::look(&look),
        Command::Pool(_) => run::pool::measure(run::pool::SEEDS, Some(&files::folder("pool")))?,
        Command::Sweep(look) if look.wanted() => return run::sweep::look(&look),
        Command::Sweep(_) => run::sweep::measure()?,
        Command::Failover => run::failover::measure()?,
        Command::Memory => run::memory::measure()?,
        Command::NoisyNeighbour => run::noisy_neighbour::measure(run::noisy_neighbour::SEEDS)?,
        Command::Outage => run::outage::measure(run::outage::SEEDS)?,
        Command::Cancel => run::cancel::measure()?,
        Command::Fairness => run::fairness::measure(run::fairness::SEEDS)?,
        Command::Starvation => run::starvation::measure(run::starvation::SEEDS)?,
        Command::Herd => run::herd::measure(run::herd::SEEDS)?,
        Command::WorkConserving => run::work_conserving::measure(run::work_conserving::SCENARIOS)?,
        Command::Scale => run::scale::measure()?,
        Command::HotPath => run::hot_path::measure()?,
        Command::AimdHistory => run::aimd_history::measure()?,
        Command::Burst => run::burst::measure(run::burst::SEEDS)?,
        Command::Kv => run::kv::measure(run::kv::SEEDS)?,
        Command::Tokens => run::tokens::measure(run::tokens::SEEDS)?,
        Command::Cap => run::cap::measure()?,
        Command::Cooldown => run::cooldown::measure(run::cooldown::SEEDS)?,
    };
    Ok(report.json().to_string())
}
