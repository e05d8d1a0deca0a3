//! `vllm-pool`: two replicas behind one pool, with conversations that share prefixes, and with
//! faults.

mod conversations;
mod faults;
mod oracle;
mod placement;
mod play;

use std::time::Duration;

use clap::Args;
use tidegate_sim::engine::EngineConfig;
use tidegate_sim::scenario::quantile;
use tokio::runtime::Runtime;

use super::conditions::{Conditions, load_average};
use super::engines::{Profile, engine};
use super::load::End;
use super::managed_servers::ManagedServer;
use crate::report::{Op, Report, Spread};
use crate::{Fallible, virtual_time};

use self::faults::{Fault, FaultRun};
use self::oracle::Reached;
use self::placement::Placement;
use self::play::{PoolRun, Replicas, Trace};

/// The seed of the first pair. No constant of the selection was chosen on this seed.
const SEED: u64 = 66;

/// The number of replicas.
const REPLICAS: usize = 2;
/// Calls per second: about 70 % of what the replicas can serve. With faults, one replica can serve
/// all of them.
const RATE: f64 = 7.0;
const FAULT_RATE: f64 = 4.0;
/// Number of runs with each fault.
const FAULT_RUNS: u64 = 3;

/// The minimum share of the pairs in which the pool is better.
const BETTER: f64 = 0.8;

/// Options of `vllm-pool`.
#[derive(Args, Debug)]
pub(crate) struct PoolArgs {
    /// Request servers and signals from the program that started this one, as `bench/vllm/run.py`
    /// expects. Without it, the simulator runs in virtual time.
    #[arg(long)]
    managed: bool,
    /// Duration of each run, in seconds, from 10 on.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=3_600))]
    seconds: u32,
    /// Run only the scenarios whose names contain this text: `placement`, `kill -9`, `SIGSTOP` and
    /// `SIGTERM`.
    #[arg(long, default_value = "")]
    scenario: String,
    /// Number of pairs of runs of the scenario `placement`.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    pairs: u64,
}

/// The two replicas of an experiment, and what is needed to run on them.
struct Experiment<'a> {
    args: &'a PoolArgs,
    engine: EngineConfig,
    /// The servers, or none for the simulator.
    servers: Vec<ManagedServer>,
    runtime: Runtime,
    /// The number of runs so far, so that each has a nonce of its own.
    runs: u64,
    conditions: Conditions,
}

/// Runs all placements and faults, and returns the report.
pub(crate) fn measure(args: &PoolArgs) -> Fallible<Report> {
    let mut report =
        Report::new(if args.managed { "vllm-pool" } else { "simulated" }, SEED..SEED + args.pairs);
    let count = if args.managed { REPLICAS } else { 0 };
    let servers = (0..count).map(|_| ManagedServer::start(Profile::Pool)).collect::<Fallible<_>>()?;
    let mut experiment = Experiment {
        args,
        // vLLM caches prefixes by default, unlike the simulator.
        engine: EngineConfig { prefix_cache: true, ..engine(Profile::Pool)? },
        servers,
        // One thread, because the cores are shared with the servers.
        runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        runs: 0,
        conditions: Conditions::default(),
    };
    if experiment.includes("placement") {
        experiment.compare_placements(&mut report)?;
    }
    for fault in Fault::ALL.into_iter().filter(|fault| fault.name().contains(&args.scenario)) {
        experiment.measure_fault(&mut report, fault)?;
    }
    Ok(report)
}

impl Experiment<'_> {
    fn includes(&self, scenario: &str) -> bool {
        scenario.contains(&self.args.scenario)
    }

    fn trace(&mut self, seed: u64, rate: f64) -> Trace {
        self.runs += 1;
        let lasts = Duration::from_secs(self.args.seconds.into());
        Trace {
            turns: conversations::draw(seed, rate, lasts).into(),
            lasts,
            seed,
            nonce: self.runs << 48 | seed,
        }
    }

    /// Returns the replicas. Must be called in the runtime that uses them.
    fn replicas(&self) -> Fallible<Replicas> {
        if self.args.managed {
            Ok(Replicas::Vllm(self.servers.iter().map(|server| server.url().to_owned()).collect()))
        } else {
            Replicas::simulated(&self.engine)
        }
    }

    fn simulate(&self, placement: Placement, trace: &Trace) -> Fallible<PoolRun> {
        virtual_time::run(trace.seed, async {
            play::play(&Replicas::simulated(&self.engine)?, &self.engine, placement, trace).await
        })
    }

    /// Plays each trace through all placements, whose order rotates from pair to pair.
    fn compare_placements(&mut self, report: &mut Report) -> Fallible<()> {
        let mut conditions = std::mem::take(&mut self.conditions);
        let mut pairs: Vec<Vec<(Placement, PoolRun)>> = Vec::new();
        let (mut simulated, mut oracles) = (Vec::new(), Vec::new());
        for pair in 0..self.args.pairs {
            let mut order = Placement::ALL;
            let first = pair as usize % order.len();
            order.rotate_left(first);
            let mut runs = Vec::new();
            for placement in order {
                let play = || {
                    let trace = self.trace(SEED + pair, RATE);
                    eprintln!("pair {}: {}, {} calls", pair + 1, placement.name(), trace.turns.len());
                    let run = if self.args.managed {
                        let replicas = self.replicas()?;
                        self.runtime.block_on(play::play(&replicas, &self.engine, placement, &trace))?
                    } else {
                        self.simulate(placement, &trace)?
                    };
                    for (what, value) in figures(&run) {
                        eprintln!("    {what}: {value:.3}");
                    }
                    Ok(run)
                };
                runs.push((placement, conditions.repeat_slow(play, |run| run.slowness)?));
            }
            pairs.push(runs);
            let trace = self.trace(SEED + pair, RATE);
            if self.args.managed {
                simulated.push(self.simulate(Placement::Pool, &trace)?);
            }
            let reached =
                oracle::WEIGHTS.map(|weight| oracle::play(&self.engine, REPLICAS, &trace.turns, weight));
            oracles.push(reached.into_iter().collect::<Fallible<Vec<Reached>>>()?);
        }
        record_placements(report, &pairs, &simulated, &oracles);
        conditions.finish(report, "", self.args.managed)
    }

    fn measure_fault(&mut self, report: &mut Report, fault: Fault) -> Fallible<()> {
        let name = fault.name();
        let mut runs = Vec::new();
        for seed in SEED..SEED + FAULT_RUNS {
            let trace = self.trace(seed, FAULT_RATE);
            let run = if self.args.managed {
                let replicas = self.replicas()?;
                self.runtime.block_on(faults::play(&replicas, fault, &trace))?
            } else {
                virtual_time::run(seed, async { faults::play(&self.replicas()?, fault, &trace).await })?
            };
            eprintln!(
                "{name}, seed {seed}: of {} calls, {} at the replica at the fault, {} lost before their first byte, and {} after it; load average {}",
                run.calls.len(),
                run.hit,
                run.needless(),
                run.truncated(),
                load_average()
            );
            runs.push(run);
        }
        let spread = |of: fn(&FaultRun) -> f64| Spread::of(runs.iter().map(of));
        report.figure(format!("{name}: calls"), spread(|run| run.calls.len() as f64));
        report.figure(format!("{name}: streams lost after they had begun"), spread(FaultRun::truncated));
        // Otherwise the run would not test the fault.
        let hit = spread(|run| run.hit).least;
        report.bar(format!("{name}: calls at the replica at the fault"), hit, Op::AtLeast, 1.0);
        let needless = spread(FaultRun::needless).most;
        report.bar(format!("{name}: calls lost before their first byte"), needless, Op::AtMost, 0.0);
        Ok(())
    }
}

const HIT_RATE: &str = "cached share of prompt tokens";
const P99: &str = "p99 TTFT, ms";

fn figures(run: &PoolRun) -> [(&'static str, f64); 4] {
    [
        (HIT_RATE, run.hit_rate()),
        ("median TTFT, ms", run.calls.ttft_ms(0.5)),
        (P99, run.calls.ttft_ms(0.99)),
        ("calls without an answer", run.calls.calls.len() as f64 - run.calls.count(End::Answered)),
    ]
}

fn record_placements(
    report: &mut Report,
    pairs: &[Vec<(Placement, PoolRun)>],
    simulated: &[PoolRun],
    oracles: &[Vec<Reached>],
) {
    let runs_of =
        |placement| pairs.iter().flatten().filter(move |(is, _)| *is == placement).map(|(_, run)| run);
    let spreads = |runs: &mut dyn Iterator<Item = &PoolRun>| {
        let runs: Vec<_> = runs.map(figures).collect();
        let of = |nth: usize| runs.iter().filter_map(move |run| run.get(nth)).map(|(_, value)| *value);
        let names = runs.first().into_iter().flatten().map(|(what, _)| *what);
        names.enumerate().map(|(nth, what)| (what, Spread::of(of(nth)))).collect::<Vec<_>>()
    };
    for (what, spread) in spreads(&mut runs_of(Placement::Pool)) {
        report.figure(what, spread);
    }
    for (what, spread) in spreads(&mut simulated.iter()) {
        report.peer("pool, simulated", what, spread);
    }
    // The best of the oracles differs between the figures.
    let best = |of: fn(&Reached) -> f64, q: f64| {
        Spread::of(oracles.iter().map(|reached| quantile(&mut reached.iter().map(of).collect::<Vec<_>>(), q)))
    };
    report.peer("best oracle, simulated", HIT_RATE, best(|reached| reached.hit_rate, 1.0));
    report.peer("best oracle, simulated", P99, best(|reached| reached.p99_ttft_ms, 0.0));
    for peer in [Placement::RoundRobin, Placement::Random] {
        for (what, spread) in spreads(&mut runs_of(peer)) {
            report.peer(peer.name(), what, spread);
        }
        let better = |is_better: fn(&PoolRun, &PoolRun) -> bool| {
            let both = runs_of(Placement::Pool).zip(runs_of(peer));
            both.filter(|(ours, theirs)| is_better(ours, theirs)).count() as f64 / pairs.len().max(1) as f64
        };
        let name = peer.name();
        report.bar(
            format!("{HIT_RATE}: share of pairs above {name}"),
            better(|ours, theirs| ours.hit_rate() > theirs.hit_rate()),
            Op::AtLeast,
            BETTER,
        );
        report.bar(
            format!("{P99}: share of pairs below {name}"),
            better(|ours, theirs| ours.calls.ttft_ms(0.99) < theirs.calls.ttft_ms(0.99)),
            Op::AtLeast,
            BETTER,
        );
    }
}
