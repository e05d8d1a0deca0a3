//! Experiments that measure every figure that Tidegate claims.
//!
//! `cargo run --release -p tidegate-bench -- NAME` prints its progress to stderr, and one JSON
//! object as the last line of stdout. It exits with 0 if it could measure, whatever the result.
//! `bench/README.md` describes each experiment.

mod chart_colours;
mod chosen_replica;
mod client_call;
mod experiments;
mod freeze;
mod output_files;
mod prompt_texts;
mod quota_provider;
mod report;
mod results;
mod retrying_clients;
mod schedulers;
mod seeds;
mod trace_lengths;
mod traces;
mod unlimited_simulators;
mod virtual_time;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use experiments as run;
use seeds::Seeds;

/// The result of a measurement. An error means that the figures could not be measured. A figure
/// that misses its bar (the threshold that it is compared with) is not an error.
pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures the figures that Tidegate claims.
#[derive(Debug, Parser)]
enum Command {
    /// Simulates the published noisy-neighbour experiment of three tenants, in virtual time.
    NoisyNeighbour,
    /// Measures attempts and recovery when an upstream is down for a minute, in virtual time.
    Outage,
    /// Cancels calls at every stage, and checks that no slot is leaked and that the upstream
    /// notices, in virtual time and over real sockets.
    Cancel,
    /// Compares each tenant's share of the tokens with its weight, for our scheduler and for
    /// others, in virtual time.
    Fairness,
    /// Measures the longest waits of calls in hours of overload, in virtual time.
    Starvation,
    /// Measures for how long calls wait although they could be admitted, by a brute-force check
    /// after each event, in virtual time.
    WorkConserving,
    /// Measures the time of an admission and the memory of a waiting call, while 100,000 calls
    /// wait.
    Scale,
    /// Prints one memory figure of `scale`. `scale` starts this command as a process of its own.
    #[command(hide = true)]
    ScaleMemory { held: run::scale::Held },
    /// Measures the wall-clock time in which one call is admitted and released.
    HotPath,
    /// Measures the concurrency and the duration of 40 calls through a gate with a cap of 4, over
    /// real sockets.
    Cap,
    /// Counts the 429s that calls receive while the upstream answers each call with 429 and
    /// Retry-After, in virtual time.
    Cooldown,
    /// Reproduces the faults that a published AIMD controller had, and the published fixes, in
    /// virtual time.
    AimdHistory,
    /// Simulates ten minutes at three times the normal call rate, in virtual time.
    Burst,
    /// Simulates the burst of one tenant beside two others with nothing configured but the tenants'
    /// names, and searches the best fixed bounds, in virtual time.
    BurstDefault {
        /// A range such as `1-4`, or a single seed.
        #[arg(long)]
        seeds: Option<Seeds>,
    },
    /// Like `burst-default`, with prompts of different lengths, with ten other tenants, and with
    /// two that burst.
    BurstMixed {
        /// A range such as `1-4`, or a single seed.
        #[arg(long)]
        seeds: Option<Seeds>,
    },
    /// Compares admission by the KV-cache memory that calls are expected to use with slots alone,
    /// with reservation of `max_tokens`, and with an oracle, in virtual time.
    Kv,
    /// Measures the used share of a token quota and the number of 429s, in virtual time.
    Tokens,
    /// Compares the adaptive limit with an oracle and other controllers, in virtual time.
    Adaptive(run::adaptive::Inspect),
    /// Measures the adaptive limit as a part of the whole client, in virtual time.
    AdaptiveGate(run::adaptive_gate::Inspect),
    /// Compares replica selection with other policies and an oracle on eight replicas, in virtual
    /// time.
    Pool(run::pool::Inspect),
    /// Runs `tidegate sweep` against servers whose best cap is known, in virtual time.
    Sweep(run::sweep::Inspect),
    /// Measures for how long slots of a shared cap are unused while calls wait in some process.
    ShareGap,
    /// Compares what processes use of shared requests and tokens per minute with the budget.
    ShareRate,
    /// Compares what processes use of a limit that only headers announce with the limit.
    ShareHeaders,
    /// Kills and stops processes that share a cap.
    ShareChaos,
    /// Counts the calls of other processes after one of them has got a 429.
    ShareCooldown,
    /// Measures shared caps with a Redis server as the store.
    ShareRedis,
    /// Kills, stops, wipes and cuts off processes and the Redis server.
    ShareRedisChaos,
    /// Compares the shares of processes with their weights, and measures how soon a newcomer is
    /// served.
    ShareFair,
    /// Measures the time and the messages that sharing a cap costs.
    ShareCost,
    /// Runs a process of the experiments on shared limits, which start this command.
    #[command(hide = true)]
    ShareMember { settings: String },
    /// Kills or hangs a replica during calls, and counts the calls that fail, over real sockets.
    Failover,
    /// Measures how evenly the calls of 64 independent clients are spread over 8 replicas.
    Herd,
    /// Measures a gate with only an objective in front of vLLM, beside the best fixed settings.
    VllmObjective(run::vllm::Options),
    /// Measures a gate without any setting in front of vLLM, beside the best cap.
    VllmDefault(run::vllm::Options),
    /// Counts vLLM's preemptions behind a gate without any setting, while the KV cache is small.
    VllmKv(run::vllm::Options),
    /// Compares the simulator's figures with vLLM's.
    VllmTruth(run::vllm::Options),
    /// Measures the burst of one of three tenants in front of vLLM with nothing configured but the
    /// tenants' names, beside the best fixed bounds on it.
    VllmTenants(run::vllm::Options),
    /// Measures eight gates that share an adaptive limit in front of vLLM, beside one gate.
    VllmShare(run::vllm::Options),
    /// Runs `tidegate sweep` against vLLM servers whose knee is known.
    VllmSweep(run::vllm::SweepArgs),
    /// Compares a pool of two vLLM replicas with other placements, and faults of one of them.
    VllmPool(run::vllm::PoolArgs),
    /// Uses one core in bursts. `vllm-sweep --busy` starts this command as a process of its own.
    #[command(hide = true)]
    VllmBusy,
    /// Measures the memory of an open stream, over real sockets.
    Memory,
    /// Serves the upstream of `memory`. `memory` starts this command as a process of its own.
    #[command(hide = true)]
    MemoryServer,
    /// Opens the streams of `memory` and prints their memory. `memory` starts this command as a
    /// process of its own.
    #[command(hide = true)]
    MemoryClient { client: run::memory::Client, url: String, streams: usize },
    /// Records figures of the experiments in virtual time on a few seeds, or compares them with the
    /// recorded figures.
    Freeze(freeze::Freeze),
    /// Stores the result of an experiment in `bench/results/NAME.json`, with the current commit.
    Record {
        /// File whose last line is the result, for example the output of an experiment.
        output: PathBuf,
    },
    /// Renders `bench/RESULTS.md` and its charts from `bench/results/`.
    Render,
}

fn main() -> ExitCode {
    match execute(Command::parse()) {
        // An experiment that has measured enough ends without reading the output of its processes.
        Ok(text) => match writeln!(std::io::stdout(), "{text}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Fallible<String> {
    // The variable would override the mode of every gate here, and change the figures.
    if std::env::var_os("TIDEGATE").is_some() {
        return Err("unset TIDEGATE first".into());
    }
    let report = match command {
        Command::Freeze(what) => return freeze::freeze(&what),
        Command::Record { output } => {
            let text = std::fs::read_to_string(&output)?;
            let line = text.trim_end().lines().next_back().unwrap_or_default();
            return results::record(line).map_err(|error| format!("{}: {error}", output.display()).into());
        }
        Command::Render => return results::render(),
        Command::VllmBusy => return run::vllm::compute_in_bursts(),
        Command::MemoryServer => return run::memory::serve(),
        Command::MemoryClient { client, url, streams } => return run::memory::hold(client, &url, streams),
        Command::ScaleMemory { held } => return run::scale::hold(held),
        Command::Adaptive(inspect) if inspect.is_requested() => return run::adaptive::inspect(&inspect),
        Command::Adaptive(_) => run::adaptive::measure(run::adaptive::SEEDS, true)?,
        Command::AdaptiveGate(inspect) if inspect.is_requested() => {
            return run::adaptive_gate::inspect(&inspect);
        }
        Command::AdaptiveGate(_) => {
            run::adaptive_gate::measure(run::adaptive_gate::BURST_SEEDS, run::adaptive_gate::REPLAY_SEEDS)?
        }
        Command::Pool(inspect) if inspect.is_requested() => return run::pool::inspect(&inspect),
        Command::Pool(_) => run::pool::measure(run::pool::SEEDS, true)?,
        Command::Sweep(inspect) if inspect.is_requested() => return run::sweep::inspect(&inspect),
        Command::Sweep(_) => run::sweep::measure()?,
        Command::ShareMember { settings } => return run::share::run_member(&settings),
        Command::ShareGap => run::share::measure_gap()?,
        Command::ShareRate => run::share::measure_rate()?,
        Command::ShareHeaders => run::share::measure_headers()?,
        Command::ShareChaos => run::share::measure_chaos()?,
        Command::ShareCooldown => run::share::measure_cooldown()?,
        Command::ShareRedis => run::share::measure_redis()?,
        Command::ShareRedisChaos => run::share::measure_redis_chaos()?,
        Command::ShareFair => run::share::measure_fair()?,
        Command::ShareCost => run::share::measure_cost()?,
        Command::Failover => run::failover::measure()?,
        Command::VllmObjective(options) => run::vllm::measure_objective(&options)?,
        Command::VllmDefault(options) => run::vllm::measure_default(&options)?,
        Command::VllmKv(options) => run::vllm::measure_kv(&options)?,
        Command::VllmTruth(options) => run::vllm::measure_truth(&options)?,
        Command::VllmTenants(options) => run::vllm::measure_tenants(&options)?,
        Command::VllmShare(options) => run::vllm::measure_shared(&options)?,
        Command::VllmSweep(args) => run::vllm::measure_sweep(&args)?,
        Command::VllmPool(args) => run::vllm::measure_pool(&args)?,
        Command::Memory => run::memory::measure()?,
        Command::BurstDefault { seeds } => {
            run::tenant_bursts::measure_default(seeds.unwrap_or(run::tenant_bursts::SEEDS), true)?
        }
        Command::BurstMixed { seeds } => {
            run::tenant_bursts::measure_mixed(seeds.unwrap_or(run::tenant_bursts::SEEDS), true)?
        }
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
