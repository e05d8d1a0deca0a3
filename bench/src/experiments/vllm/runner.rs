//! Runs a plan against vLLM over real sockets, or against the simulator in virtual time.

use std::time::Duration;

use fastrand::Rng;
use http_body_util::BodyExt;
use tidegate::{Gate, Transport};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::scenario::quantile;
use tidegate_sim::{SimConfig, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::Options;
use super::conditions::Conditions;
use super::contender::{Contender, http};
use super::engines::{Profile, engine};
use super::load::{Call, Plan, generate, request};
use super::managed_servers::ManagedServer;
use super::run::Run;
use super::server_metrics::{Sample, poll, sample};
use crate::report::Report;
use crate::{Fallible, virtual_time};

/// Time after the first call of several gates until a new Redis server grants them the whole limit.
const GRANTS_WITHIN: Duration = Duration::from_millis(4_500);
/// Time in which the server must finish the cancelled calls of the last run.
const SETTLES: Duration = Duration::from_secs(60);
/// The address of the simulator. As with vLLM on this machine, the gate reads its metrics.
pub(super) const SIMULATOR: &str = "http://localhost";
/// Prompt and output of a lone call, in tokens.
const LONE: (u32, u32) = (100, 21);
/// Number of lone calls of which [`front_end`] takes the median. The first call of a server is
/// slow.
const LONE_CALLS: usize = 9;

/// A call that the server computed alone.
struct LoneCall {
    /// Median time between its tokens, in milliseconds.
    step_ms: f64,
    ttft_ms: f64,
}

/// A server, and the conditions of the runs so far.
pub(super) struct Runner {
    pub(super) engine: EngineConfig,
    server: Server,
    runtime: Runtime,
    conditions: Conditions,
}

/// What answers the calls.
enum Server {
    Vllm(ManagedServer),
    /// The simulator, in virtual time.
    Virtual,
    /// The simulator at this URL, in real time.
    Simulated(String),
}

impl Server {
    /// Returns the URL of the server. `None` in virtual time.
    fn url(&self) -> Option<&str> {
        match self {
            Self::Vllm(server) => Some(server.url()),
            Self::Virtual => None,
            Self::Simulated(url) => Some(url),
        }
    }

    fn is_vllm(&self) -> bool {
        matches!(self, Self::Vllm(_))
    }
}

impl Runner {
    /// Starts a server with the given profile. It runs until the runner is dropped.
    pub(super) fn new(options: &Options, profile: Profile) -> Fallible<Self> {
        let vllm = options.managed.then(|| ManagedServer::start(profile)).transpose()?;
        let server = vllm.map_or(Server::Virtual, Server::Vllm);
        // One thread, because the cores are shared with the server.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let engine = engine(profile)?;
        Ok(Self { engine, server, runtime, conditions: Conditions::default() })
    }

    /// Like [`Runner::new`], but the simulator runs in real time, at a port of its own.
    pub(super) fn over_sockets(options: &Options, profile: Profile) -> Fallible<Self> {
        let mut runner = Self::new(options, profile)?;
        if !options.managed {
            let simulator = simulator(&runner.engine)?;
            let listener = runner.runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
            runner.server = Server::Simulated(format!("http://{}", listener.local_addr()?));
            runner.runtime.spawn(tidegate_sim::serve(listener, simulator));
        }
        Ok(runner)
    }

    /// Makes the calls of `plan`, and prints the figures. Repeats the run if the steps of the
    /// server were too slow.
    pub(super) fn play(&mut self, scenario: &str, contender: Contender, plan: &Plan) -> Fallible<Run> {
        let Self { engine, server, runtime, conditions } = self;
        let play = || {
            eprintln!("{scenario}: {}", contender.name());
            let run = match server.url() {
                None => simulate(engine, Duration::ZERO, contender, plan)?,
                Some(url) => runtime.block_on(play_in_real_time(url, &engine.step, contender, plan))?,
            };
            for (what, value) in run.figures() {
                eprintln!("    {what}: {value:.3}");
            }
            Ok(run)
        };
        conditions.repeat_slow(play, |run| run.slowness)
    }

    /// Records the conditions of the runs in `report`, and stops the server.
    ///
    /// # Errors
    ///
    /// Returns an error if a run remained too slow, because the figures are then not valid.
    pub(super) fn finish(self, report: &mut Report, prefix: &str) -> Fallible<()> {
        self.conditions.finish(report, prefix, self.server.is_vllm())
    }

    /// Returns the latency of the server's HTTP front end. Zero for the simulator.
    pub(super) fn front_end(&self) -> Fallible<Duration> {
        let Some(url) = self.server.url() else { return Ok(Duration::ZERO) };
        self.runtime.block_on(front_end(url, &self.engine.step))
    }
}

/// Returns the latency of the HTTP front end of the server at `url`: the median time to the first
/// token of calls that the server computes alone, less the time of a step.
pub(super) async fn front_end(url: &str, step: &StepCost) -> Fallible<Duration> {
    let wire = http()?;
    let mut times = Vec::new();
    for _ in 0..LONE_CALLS {
        times.push(lone_call(&wire, url).await?.ttft_ms);
    }
    let step_ms = step.base_ms + step.per_sequence_ms + step.per_prompt_token_ms * f64::from(LONE.0);
    Ok(Duration::from_secs_f64((quantile(&mut times, 0.5) - step_ms).max(0.0) / 1e3))
}

/// Makes the calls of `plan` in virtual time, over a simulator of `engine`. Each call and each
/// response head is delayed by half of `round_trip`.
pub(super) fn simulate(
    engine: &EngineConfig,
    round_trip: Duration,
    contender: Contender,
    plan: &Plan,
) -> Fallible<Run> {
    virtual_time::run(plan.seed, async {
        let simulator = simulator(engine)?;
        let wire = simulator_transport(&simulator, round_trip);
        let (client, gate) = contender.client(SIMULATOR, Some(wire.clone()))?;
        let (calls, samples) = play(&client, gate.as_ref(), &wire, SIMULATOR, plan).await;
        Ok(Run { calls, samples, lasts: plan.lasts.as_secs_f64(), slowness: 1.0 })
    })
}

/// Starts a simulator of one `engine` in the current runtime.
pub(super) fn simulator(engine: &EngineConfig) -> Fallible<Simulator> {
    let config = SimConfig {
        workers: 1,
        engine: engine.clone(),
        models: Vec::new(),
        attempt_log: 0,
        ..SimConfig::calibrated()
    };
    Ok(Simulator::new(config)?)
}

async fn play_in_real_time(url: &str, step: &StepCost, contender: Contender, plan: &Plan) -> Fallible<Run> {
    let wire = http()?;
    let before = lone_slowness(&wire, url, step).await?;
    let (client, gate) = contender.client(url, None)?;
    if let Contender::Gates { count, .. } = contender {
        // Calls take turns between the gates. A new Redis server grants few slots at first, so
        // these may be refused.
        for _ in 0..count {
            let _ = lone_call(&client, url).await;
        }
        sleep(GRANTS_WITHIN).await;
        for _ in 0..count {
            lone_call(&client, url).await?;
        }
    }
    let (calls, samples) = play(&client, gate.as_ref(), &wire, url, plan).await;
    let after = lone_slowness(&wire, url, step).await?;
    let mut run = Run { calls, samples, lasts: plan.lasts.as_secs_f64(), slowness: before.max(after) };
    run.slowness = run.slowness.max(run.gap_ratio(step).unwrap_or_default());
    Ok(run)
}

async fn play(
    client: &Transport,
    gate: Option<&Gate>,
    wire: &Transport,
    base: &str,
    plan: &Plan,
) -> (Vec<Call>, Vec<Sample>) {
    let mut samples = Vec::new();
    let calls = tokio::select! {
        calls = generate(client, base, plan) => calls,
        () = poll(wire, base, gate, &mut samples) => Vec::new(),
    };
    (calls, samples)
}

/// Waits until the server has no calls, and makes a lone call. Returns the time of its steps,
/// divided by the configured time.
pub(super) async fn lone_slowness(wire: &Transport, url: &str, step: &StepCost) -> Fallible<f64> {
    settle(wire, url).await?;
    Ok(lone_call(wire, url).await?.step_ms / (step.base_ms + step.per_sequence_ms))
}

/// Waits until the server has no calls.
async fn settle(wire: &Transport, url: &str) -> Fallible<()> {
    let by = Instant::now() + SETTLES;
    loop {
        let now = sample(wire, url).await?;
        if now.running + now.waiting == 0.0 {
            return Ok(());
        }
        if Instant::now() > by {
            return Err(format!("{url} still has calls {} s after a run", SETTLES.as_secs()).into());
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Makes a call while the server has no other.
async fn lone_call(wire: &Transport, url: &str) -> Fallible<LoneCall> {
    let mut times = Vec::new();
    let began = Instant::now();
    let response = wire.clone().oneshot(request(url, LONE, &mut Rng::new())).await?;
    if !response.status().is_success() {
        return Err(format!("{url} answers {}", response.status()).into());
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    // The end of the stream follows the last token at once.
    let gaps = times.iter().zip(times.iter().skip(1)).map(|(earlier, later)| later - earlier);
    let mut gaps: Vec<f64> = gaps.filter(|gap| *gap > 1.0).collect();
    let ttft_ms = times.first().copied().unwrap_or(f64::NAN);
    Ok(LoneCall { step_ms: quantile(&mut gaps, 0.5), ttft_ms })
}
