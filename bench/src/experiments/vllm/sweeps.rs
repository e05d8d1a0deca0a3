//! `vllm-sweep`: `tidegate sweep` in front of servers whose knee is known.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fastrand::Rng;
use tidegate::Transport;
use tidegate::config::TransportConfig;
use tidegate::transport::Http;
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sweep::{
    Binding, MixOptions, SearchSettings, Sweep, SweepEnd, SweepOptions, SweepOutcome, cpu_monitor,
};
use tidegate_test_servers::simulator_transport;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::busy::BusyProcess;
use super::conditions::Conditions;
use super::contender::http;
use super::engines::{Profile, engine};
use super::knee::Knee;
use super::load::{Lengths, MODEL};
use super::managed_servers::ManagedServer;
use super::runner::{SIMULATOR, front_end, lone_slowness, simulator};
use crate::report::{Op, Report, Spread};
use crate::{Fallible, virtual_time};

/// The seed of the first run. No constant of the search was chosen on this seed.
const SEED: u64 = 65;

/// The objective for the time to the first token. Calls that wait in the server miss it. Of the
/// calls with slow prompts, some miss it from a few sequences on, because the prompts of others are
/// computed in the same steps.
const OBJECTIVE: Duration = Duration::from_millis(200);

/// The number of calls whose lengths are drawn. A sweep repeats them in random order.
const DIFFERENT: usize = 400;

/// The maximum duration of a sweep, in seconds.
const SECONDS: f64 = 600.0;
/// The maximum distance between the answer and each end of its interval, divided by the answer.
const WIDTH: f64 = 0.25;
/// The maximum number of calls in flight, divided by the true knee.
const IN_FLIGHT: f64 = 4.0;

/// Options of `vllm-sweep`.
#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    /// Request servers from the program that started this one, as `bench/vllm/run.py` expects.
    /// Without it, the simulator runs in virtual time.
    #[arg(long)]
    managed: bool,
    /// Run only the scenarios whose names contain this text.
    #[arg(long, default_value = "")]
    scenario: String,
    /// Number of sweeps of each scenario.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    runs: u64,
    /// Seed of the first sweep of each scenario.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Step times of the simulator in milliseconds, instead of the configured ones: of a step, and
    /// per sequence and per prompt token in it.
    #[arg(long, value_names = ["STEP", "SEQUENCE", "TOKEN"], num_args = 3, conflicts_with = "managed")]
    step: Vec<f64>,
    /// Let another program use one core in bursts of 4 s, with pauses of 6 s. Sweeps then count
    /// even if the steps of the server are slow.
    #[arg(long, requires = "managed")]
    busy: bool,
}

/// Sweeps of one server, and the correct answer.
struct Scenario {
    name: &'static str,
    profile: Profile,
    lengths: Lengths,
    knee: Knee,
    binding: Binding,
}

impl Scenario {
    /// Returns all scenarios. Those of one server follow each other.
    fn all() -> Vec<Self> {
        // Those of `vllm-default`, but a prompt of a sweep has at least 24 tokens.
        let lengths = Lengths { prompt: (24, 200), output: (16, 48) };
        let queue = |name, profile, knee| Self { name, profile, lengths, knee, binding: Binding::Saturation };
        let objective = Knee::InTime(OBJECTIVE);
        vec![
            queue("8 sequences", Profile::Sweep8, Knee::Sequences),
            queue("8 sequences, ttft 0.2 s", Profile::Sweep8, objective),
            queue("16 sequences", Profile::Sweep16, Knee::Sequences),
            queue("16 sequences, ttft 0.2 s", Profile::Sweep16, objective),
            queue("24 sequences", Profile::Sweep24, Knee::Sequences),
            queue("24 sequences, ttft 0.2 s", Profile::Sweep24, objective),
            Self {
                lengths: Lengths { prompt: (66, 200), output: (8, 24) },
                ..queue(
                    "24 sequences, slow prompts, ttft 0.2 s",
                    Profile::SweepPrompts,
                    Knee::Goodput(Some(OBJECTIVE)),
                )
            },
            Self {
                name: "small KV cache",
                profile: Profile::SweepKv,
                // Those of `vllm-kv`.
                lengths: Lengths { prompt: (24, 120), output: (32, 128) },
                knee: Knee::Goodput(None),
                binding: Binding::KvCliff,
            },
        ]
    }
}

/// A sweep that has ended.
struct Played {
    outcome: SweepOutcome,
    /// The maximum number of calls of the plan.
    planned: f64,
    /// The maximum number of calls in flight at once.
    in_flight: usize,
    /// The time of a step before or after the sweep, divided by the configured time, whichever is
    /// longer. 1 in the simulator.
    slowness: f64,
}

/// Runs all scenarios, and returns the report.
pub(crate) fn measure(args: &SweepArgs) -> Fallible<Report> {
    let name = match args {
        SweepArgs { managed: false, .. } => "simulated",
        SweepArgs { busy: true, .. } => "vllm-sweep-busy",
        SweepArgs { .. } => "vllm-sweep",
    };
    let seeds = args.seed..args.seed + args.runs;
    let mut report = Report::new(name, seeds.clone());
    let mut conditions = Conditions::default();
    let runtime = Runtime::new()?;
    let mut server: Option<(Profile, ManagedServer)> = None;
    for scenario in Scenario::all().into_iter().filter(|scenario| scenario.name.contains(&args.scenario)) {
        let mut engine = engine(scenario.profile)?;
        if let [base_ms, per_sequence_ms, per_prompt_token_ms] = *args.step {
            engine.step = StepCost { base_ms, per_sequence_ms, per_prompt_token_ms, ..engine.step };
        }
        if args.managed && server.as_ref().is_none_or(|(profile, _)| *profile != scenario.profile) {
            // The last server is stopped first, because servers share the cores.
            drop(server.take());
            server = Some((scenario.profile, ManagedServer::start(scenario.profile)?));
        }
        let url = server.as_ref().map(|(_, server)| server.url());
        let latency = url.map(|url| runtime.block_on(front_end(url, &engine.step))).transpose()?;
        let knee = scenario.knee.find(&engine, scenario.lengths, latency.unwrap_or_default())?;
        eprintln!("{}: the true knee is {knee}", scenario.name);
        let sweeps = match url {
            None => virtual_time::each(seeds.clone(), |seed| simulate(&engine, &scenario, seed))?,
            Some(url) => {
                let play = |seed| {
                    let play = || {
                        let busy = args.busy.then(BusyProcess::start).transpose()?;
                        let played = runtime.block_on(play_vllm(url, &engine, &scenario, seed, busy))?;
                        print(&scenario, seed, &played);
                        Ok(played)
                    };
                    // The busy process is meant to slow the steps down.
                    conditions.repeat_slow(play, |played| if args.busy { 1.0 } else { played.slowness })
                };
                seeds.clone().map(play).collect::<Fallible<Vec<Played>>>()?
            }
        };
        record(&mut report, &scenario, knee as f64, &sweeps);
    }
    conditions.finish(&mut report, "", args.managed)?;
    Ok(report)
}

fn simulate(engine: &EngineConfig, scenario: &Scenario, seed: u64) -> Fallible<Played> {
    virtual_time::run(seed, async {
        let wire = simulator_transport(&simulator(engine)?, Duration::ZERO);
        let played = play(scenario, seed, SIMULATOR, wire, 1.0, |sweep| sweep).await?;
        print(scenario, seed, &played);
        Ok(played)
    })
}

/// Sweeps a server. `_busy` runs meanwhile.
async fn play_vllm(
    url: &str,
    engine: &EngineConfig,
    scenario: &Scenario,
    seed: u64,
    _busy: Option<BusyProcess>,
) -> Fallible<Played> {
    let lone = http()?;
    let before = lone_slowness(&lone, url, &engine.step).await?;
    // As in `tidegate sweep`, except for proxies.
    let pool_idle = TransportConfig::default().pool_idle.max(SearchSettings::default().max_cap);
    let connections = TransportConfig { proxy_from_env: false, pool_idle, ..TransportConfig::default() };
    let wire = Transport::new(Http::new(connections)?);
    let played = play(scenario, seed, url, wire, before, |sweep| sweep.cpu(cpu_monitor())).await?;
    let after = lone_slowness(&lone, url, &engine.step).await?;
    Ok(Played { slowness: before.max(after), ..played })
}

/// Sweeps the server at the base URL `url` with the options of
/// `tidegate sweep --trace FILE --exact-output`, and with `--ttft` if the scenario has an
/// objective. `extend` may add to the sweep.
async fn play(
    scenario: &Scenario,
    seed: u64,
    url: &str,
    wire: Transport,
    slowness: f64,
    extend: impl FnOnce(Sweep) -> Sweep,
) -> Fallible<Played> {
    let lengths = LengthsFile::write(scenario.lengths, seed)?;
    let sweep = extend(Sweep::new(SweepOptions {
        url: url.to_owned(),
        model: MODEL.to_owned(),
        mix: MixOptions::Trace { path: lengths.0.clone() },
        exact_output: true,
        search: SearchSettings {
            ttft: scenario.knee.objective().map(|ttft| ttft.as_secs_f64()),
            ..SearchSettings::default()
        },
        seed,
        engine_metrics: true,
        ..SweepOptions::default()
    })?);
    let planned = sweep.plan().calls.most;
    let mut in_flight = 0;
    // Kept open, because nothing stops the sweep.
    let (_stop, stopped) = watch::channel(false);
    let outcome = sweep.run(wire, |progress| in_flight = in_flight.max(progress.in_flight), stopped).await?;
    Ok(Played { outcome, planned, in_flight, slowness })
}

/// A temporary file with the lengths of calls. It is removed on drop.
struct LengthsFile(PathBuf);

impl LengthsFile {
    fn write(lengths: Lengths, seed: u64) -> Fallible<Self> {
        let mut rng = Rng::with_seed(seed);
        let mut text = "input,output\n".to_owned();
        for _ in 0..DIFFERENT {
            let (prompt, output) = lengths.draw(&mut rng);
            text.push_str(&format!("{prompt},{output}\n"));
        }
        let path =
            std::env::temp_dir().join(format!("tidegate-bench-vllm-{}-{seed}.csv", std::process::id()));
        std::fs::write(&path, text)?;
        Ok(Self(path))
    }
}

impl Drop for LengthsFile {
    fn drop(&mut self) {
        // A remaining file does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn print(scenario: &Scenario, seed: u64, played: &Played) {
    let Played { outcome, planned, in_flight, .. } = played;
    let SweepOutcome { answer, spend, .. } = outcome;
    let confirmed = if answer.confirmed { "confirmed" } else { "not confirmed" };
    eprintln!(
        "{}, seed {seed}: cap {:?}, interval {:?}, {:?}, {confirmed}; {} of {planned} calls, {:.0} s, up to {in_flight} in flight",
        scenario.name, answer.cap, answer.interval, answer.binding, spend.calls, spend.seconds
    );
    eprintln!("    {} {}", answer.because, answer.notes.join(" "));
}

/// Records the figures of the sweeps of a scenario. The bars are about the worst of them.
fn record(report: &mut Report, scenario: &Scenario, knee: f64, sweeps: &[Played]) {
    let name = scenario.name;
    let spread = |of: &dyn Fn(&Played) -> f64| Spread::of(sweeps.iter().map(of));
    let share = |is: &dyn Fn(&Played) -> bool| {
        sweeps.iter().filter(|played| is(played)).count() as f64 / sweeps.len() as f64
    };
    report.figure(format!("{name}: true knee"), knee);
    for (what, of) in FIGURES {
        report.figure(format!("{name}: {what}"), spread(&of));
    }
    let covers = |played: &Played| {
        let is_between = |(low, high): (usize, usize)| (low as f64..=high as f64).contains(&knee);
        played.outcome.answer.interval.is_some_and(is_between)
    };
    let shares = [
        ("share of intervals that contain the knee", share(&covers)),
        ("share of correct causes", share(&|it| it.outcome.answer.binding == Some(scenario.binding))),
        ("share confirmed", share(&|it| it.outcome.answer.confirmed && it.outcome.ended == SweepEnd::Found)),
    ];
    for (what, share) in shares {
        report.bar(format!("{name}: {what}"), share, Op::AtLeast, 1.0);
    }
    let most = [
        ("widest side of an interval / answer", spread(&widest_side).most, WIDTH),
        ("longest, s", spread(&|it| it.outcome.spend.seconds).most, SECONDS),
        ("calls / calls of the plan", spread(&|it| it.outcome.spend.calls as f64 / it.planned).most, 1.0),
        ("calls in flight / knee", spread(&|it| it.in_flight as f64 / knee).most, IN_FLIGHT),
    ];
    for (what, value, bar) in most {
        report.bar(format!("{name}: {what}"), value, Op::AtMost, bar);
    }
}

type Figure = (&'static str, fn(&Played) -> f64);
const FIGURES: [Figure; 6] = [
    ("answer", |it| it.outcome.answer.cap.map_or(f64::NAN, |cap| cap as f64)),
    ("lower end of the interval", |it| it.outcome.answer.interval.map_or(f64::NAN, |(low, _)| low as f64)),
    ("upper end of the interval", |it| it.outcome.answer.interval.map_or(f64::NAN, |(_, high)| high as f64)),
    ("calls", |it| it.outcome.spend.calls as f64),
    ("seconds", |it| it.outcome.spend.seconds),
    ("calls in flight", |it| it.in_flight as f64),
];

/// Returns the larger distance between the answer and an end of its interval, divided by the
/// answer. Infinite without an answer, or if the interval is open.
fn widest_side(played: &Played) -> f64 {
    let answer = &played.outcome.answer;
    let (Some(cap), Some((low, high)), false) = (answer.cap, answer.interval, answer.open_above) else {
        return f64::INFINITY;
    };
    (cap - low.min(cap)).max(high - cap.min(high)) as f64 / cap as f64
}
