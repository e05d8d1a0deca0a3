//! `vllm-truth`: the simulator with the step times of the server reproduces its figures.

use std::time::Duration;

use tidegate_sim::engine::{EngineConfig, StepCost};

use super::Options;
use super::contender::Contender;
use super::engines::{Profile, capacity};
use super::load::{Lengths, Load, Plan};
use super::run::Run;
use super::runner::{Runner, simulate};
use crate::Fallible;
use crate::report::{Op, Report};

const SEED: u64 = 64;

const LENGTHS: Lengths = Lengths { prompt: (20, 200), output: (16, 48) };
const LONG: Lengths = Lengths { prompt: (24, 120), output: (32, 128) };
/// Prompts that take two to four steps of [`Profile::KvPrompts`], of which about four fit into its
/// cache.
pub(super) const CHUNKED: Lengths = Lengths { prompt: (400, 900), output: (32, 96) };

/// How far the simulator's figures may differ from the server's, as a share of the server's.
const DIFFERENCE: f64 = 0.15;

/// A figure, and the difference below which two values of it count as equal.
type Figure = (&'static str, fn(&Run) -> f64, f64);
const FIGURES: [Figure; 5] = [
    ("output tokens/s", Run::tokens_per_second, 0.0),
    ("median TTFT, ms", |run| run.ttft_ms(0.5), 5.0),
    ("p99 TTFT, ms", |run| run.ttft_ms(0.99), 10.0),
    ("waiting in the server", Run::waiting, 1.0),
    ("preemptions per call", Run::preemptions_per_call, 0.02),
];

/// One compared run: its name, the client, the load, and the lengths of the calls.
type Scenario = (&'static str, Contender, Load, Lengths);

/// Runs loads against both servers and against the simulator, and returns the report.
///
/// The simulator's steps are as much longer than configured as the server's mean time between
/// tokens is longer than the simulator's in the same run. Its responses are delayed by the time
/// that the server's HTTP front end takes in a lone call.
pub(crate) fn measure(options: &Options) -> Fallible<Report> {
    let mut report = options.report("vllm-truth", [SEED]);
    let mut queue = Runner::new(options, Profile::Queue)?;
    let rate = capacity(&queue.engine, LENGTHS);
    let wait = Duration::from_millis(850);
    let scenarios: [Scenario; 5] = [
        ("half the capacity", Contender::Stock, Load::Open(0.5 * rate), LENGTHS),
        ("0.8 times the capacity", Contender::Stock, Load::Open(0.8 * rate), LENGTHS),
        ("1.5 times the capacity", Contender::Stock, Load::Open(1.5 * rate), LENGTHS),
        ("1.5 times the capacity, cap 16", Contender::fixed(16, wait), Load::Open(1.5 * rate), LENGTHS),
        ("32 callers, cap 24", Contender::cap(24), Load::Closed(32), LENGTHS),
    ];
    compare(options, &mut report, &mut queue, &scenarios)?;
    queue.finish(&mut report, "")?;
    let scenarios: [Scenario; 3] = [
        ("small KV cache, 16 callers", Contender::Stock, Load::Closed(16), LONG),
        ("small KV cache, 64 callers", Contender::Stock, Load::Closed(64), LONG),
        ("small KV cache, 64 callers, cap 32", Contender::cap(32), Load::Closed(64), LONG),
    ];
    let mut kv = Runner::new(options, Profile::Kv)?;
    compare(options, &mut report, &mut kv, &scenarios)?;
    kv.finish(&mut report, "small KV cache: ")?;
    let scenarios: [Scenario; 2] = [
        ("prompts above the step budget, 4 callers", Contender::Stock, Load::Closed(4), CHUNKED),
        ("prompts above the step budget, 16 callers", Contender::Stock, Load::Closed(16), CHUNKED),
    ];
    let mut prompts = Runner::new(options, Profile::KvPrompts)?;
    compare(options, &mut report, &mut prompts, &scenarios)?;
    prompts.finish(&mut report, "prompts above the step budget: ")?;
    Ok(report)
}

fn compare(
    options: &Options,
    report: &mut Report,
    runner: &mut Runner,
    scenarios: &[Scenario],
) -> Fallible<()> {
    let step = runner.engine.step;
    let front_end = runner.front_end()?;
    for (scenario, contender, load, lengths) in scenarios {
        if !options.includes(scenario) {
            continue;
        }
        let plan = Plan {
            load: *load,
            lengths: *lengths,
            lasts: options.lasts(),
            tail: Duration::from_secs(1),
            seed: SEED,
        };
        let real = runner.play(scenario, *contender, &plan)?;
        let simulated = simulate(&runner.engine, front_end, *contender, &plan)?;
        let ratio = real.mean_gap_ms() / simulated.mean_gap_ms();
        eprintln!("    simulated: steps {ratio:.3} times as long, and {front_end:?} for the front end");
        let step = StepCost {
            base_ms: step.base_ms * ratio,
            per_sequence_ms: step.per_sequence_ms * ratio,
            per_prompt_token_ms: step.per_prompt_token_ms * ratio,
            ..step
        };
        let engine = EngineConfig { step, ..runner.engine.clone() };
        let simulated = simulate(&engine, front_end, *contender, &plan)?;
        for (what, pick, equal) in FIGURES {
            let (real, simulated) = (pick(&real), pick(&simulated));
            report.figure(format!("{scenario}: {what}"), simulated);
            report.peer("vLLM", format!("{scenario}: {what}"), real);
            let apart = (simulated - real).abs();
            let difference = if apart <= equal { 0.0 } else { apart / real };
            report.bar(
                format!("{scenario}: {what}, relative difference"),
                difference,
                Op::AtMost,
                DIFFERENCE,
            );
        }
    }
    Ok(())
}
