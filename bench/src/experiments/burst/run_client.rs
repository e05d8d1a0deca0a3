//! Simulates one run: each arrival is a call through the client, to one simulated replica.

use std::time::Duration;

use http_body_util::BodyExt;
use tidegate::config::{Config, LaneSettings, Mode, Predict, Target};
use tidegate::{Error, Gate, Lane, Transport};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::{SimConfig, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower::ServiceExt;

use super::arrivals::{Arrival, tenants};
use crate::Fallible;
use crate::client_call::URL;
use crate::virtual_time;

/// The configuration of the gate in front of the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateVariant {
    /// The configuration of a published guide: slots, caps per tenant, lanes with ageing (waiting
    /// calls move up a lane over time), admission by KV-cache memory, a maximum prompt length, and
    /// immediate rejection of calls that would miss the objective.
    Whole,
    /// [`GateVariant::Whole`] without admission by KV-cache memory.
    NoMemory,
    /// Slots only. Calls are served first come, first served.
    Fifo,
    /// No gate.
    Off,
}

/// The maximum number of concurrent calls at the replica. The published guide has 48 sequences per
/// replica.
const CAP: usize = 48;
/// The maximum prompt length, in tokens, that the operator configures.
const MAX_PROMPT: u64 = 16_384;
/// The `max_tokens` of each call.
const MAX_TOKENS: u32 = 4_096;
/// The time after which an interactive caller without a token leaves. Callers in other lanes leave
/// after ten times as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a replica of about the size of an A100 with a model of 8 billion parameters.
///
/// It computes 16,000 prompt tokens per second, makes 80 steps per second with one sequence and 50
/// with 48, and caches 90,000 tokens.
fn replica() -> SimConfig {
    SimConfig {
        workers: 1,
        engine: EngineConfig {
            max_model_len: 32_768,
            step: StepCost {
                base_ms: 12.0,
                per_prompt_token_ms: 0.06,
                per_sequence_ms: 0.15,
                ..StepCost::default()
            },
            ..EngineConfig::default()
        },
        attempt_log: 0,
        ..SimConfig::calibrated()
    }
}

fn config(variant: GateVariant, capacity: u64) -> Fallible<Config> {
    let second = Duration::from_secs;
    let mut target = Target::new("replica").url(URL).cap(CAP);
    if matches!(variant, GateVariant::Whole | GateVariant::NoMemory) {
        target = target
            .max_prompt(MAX_PROMPT)
            .aging(second(120))
            .predict(Predict::Objective)
            .lane(
                Lane::Interactive,
                LaneSettings::new().floor(0.8).wait(Duration::from_millis(900)).ttft(second(2)),
            )
            .lane(Lane::Standard, LaneSettings::new().wait(second(20)))
            .lane(Lane::Batch, LaneSettings::new().queue(50).wait(second(120)));
        for (name, tenant) in tenants() {
            target = target.tenant(name, tenant);
        }
        if variant == GateVariant::Whole {
            target = target.kv_tokens(capacity);
        }
    }
    let mode = if variant == GateVariant::Off { Mode::Off } else { Mode::Enforce };
    Ok(Config::builder().mode(mode).target(target).build()?)
}

/// A call: its time since the start of the run, its lane, and how it ended.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) at: Duration,
    pub(super) lane: Lane,
    pub(super) end: End,
}

#[derive(Clone, Debug)]
pub(super) enum End {
    /// The answer was complete. `ttft` is the time from the call to the first token.
    Answered { ttft: Duration },
    /// The caller left because no token came within the caller's patience.
    Left,
    /// The gate rejected the call for the given reason.
    Refused { reason: &'static str },
    /// The call failed for any other reason.
    Failed,
}

/// The calls of a run, and the counters of the simulated replica.
#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) rows: Vec<Row>,
    pub(super) preemptions: u64,
    pub(super) peak_kv: f64,
    pub(super) peak_in_flight: usize,
    pub(super) attempts: u64,
    /// Attempts that the upstream answered with 429 or 503.
    pub(super) pushed_back: u64,
}

/// Simulates the calls of one seed through a gate with the given configuration.
pub(super) fn play(variant: GateVariant, arrivals: &[Arrival], seed: u64) -> Fallible<RunResult> {
    virtual_time::run(seed, async {
        let replica = replica();
        let capacity = u64::from(replica.engine.num_blocks) * u64::from(replica.engine.block_size);
        let simulator = Simulator::new(replica)?;
        let gate = Gate::over(config(variant, capacity)?, simulator_transport(&simulator, Duration::ZERO))?;
        let start = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for arrival in arrivals.iter().cloned() {
            let client = Transport::new(gate.client());
            callers.spawn(async move {
                sleep_until(start + arrival.at).await;
                let end = ask(client, &arrival).await;
                Row { at: arrival.at, lane: arrival.lane, end }
            });
        }
        let rows = callers.join_all().await;
        let stats = simulator.stats();
        let statuses = stats.tenants.values().flat_map(|tenant| &tenant.statuses);
        Ok(RunResult {
            rows,
            preemptions: stats.preemptions,
            peak_kv: stats.peak_kv,
            peak_in_flight: stats.peak_in_flight,
            attempts: stats.total_attempts,
            pushed_back: statuses.filter(|(status, _)| matches!(status, 429 | 503)).map(|(_, n)| n).sum(),
        })
    })
}

async fn ask(client: Transport, arrival: &Arrival) -> End {
    let asked = Instant::now();
    let patience = if arrival.lane == Lane::Interactive { PATIENCE } else { PATIENCE * 10 };
    let request = arrival.work.request(&arrival.tenant, arrival.lane, MAX_TOKENS);
    let begun = timeout_at(asked + patience, async {
        let mut body = client.oneshot(request).await?.into_body();
        let first = body.frame().await;
        Ok::<_, Error>((body, first))
    });
    let (mut body, first) = match begun.await {
        Err(_) => return End::Left,
        Ok(Err(error)) => {
            return match error.kind().reason() {
                Some(reason) => End::Refused { reason: reason.as_str() },
                None => End::Failed,
            };
        }
        Ok(Ok(begun)) => begun,
    };
    let ttft = asked.elapsed();
    let mut whole = false;
    let mut frame = first;
    while let Some(next) = frame {
        let Ok(next) = next else { return End::Failed };
        whole |= next.data_ref().is_some_and(|data| data.ends_with(b"data: [DONE]\n\n"));
        frame = body.frame().await;
    }
    if whole { End::Answered { ttft } } else { End::Failed }
}
