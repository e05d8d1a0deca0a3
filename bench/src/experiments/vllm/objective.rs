//! `vllm-objective`: a gate whose only setting is the objective for the time to the first token,
//! beside the best fixed cap and maximum wait.

use std::time::Duration;

use tidegate_sim::engine::EngineConfig;

use super::Options;
use super::contender::Contender;
use super::engines::{Profile, capacity};
use super::load::{Lengths, Load, Plan};
use super::run::Run;
use super::runner::{Runner, simulate};
use crate::report::{Op, Report};
use crate::{Fallible, virtual_time};

/// No constant of the adaptive limit was chosen on this seed.
const SEED: u64 = 61;

const OBJECTIVE: Duration = Duration::from_secs(1);
/// Calls per second, divided by the capacity of the server.
const LOADS: [f64; 4] = [0.5, 1.0, 1.5, 3.0];
const MIXES: [(&str, Lengths); 2] = [
    ("one size", Lengths { prompt: (100, 100), output: (24, 24) }),
    ("mixed sizes", Lengths { prompt: (20, 400), output: (8, 64) }),
];

/// The fixed settings that are simulated to find the best one.
const CAPS: [usize; 10] = [8, 10, 12, 14, 16, 18, 20, 24, 32, 48];
const WAITS: [Duration; 7] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(400),
    Duration::from_millis(550),
    Duration::from_millis(700),
    Duration::from_millis(850),
    Duration::from_millis(1_000),
];

/// The minimum goodput, divided by that of the best fixed settings.
const GOODPUT: f64 = 0.95;
/// The minimum share of the admitted calls that meet the objective.
const IN_TIME: f64 = 0.95;

/// Runs each load and mix of sizes with all contenders, and returns the report.
pub(crate) fn measure(options: &Options) -> Fallible<Report> {
    let mut runner = Runner::new(options, Profile::Queue)?;
    let mut report = options.report("vllm-objective", [SEED]);
    for (mix, lengths) in MIXES {
        for load in LOADS {
            let scenario = format!("{load} times the capacity, {mix}");
            if !options.includes(&scenario) {
                continue;
            }
            let plan = Plan {
                load: Load::Open(load * capacity(&runner.engine, lengths)),
                lengths,
                lasts: options.lasts(),
                tail: OBJECTIVE,
                seed: SEED,
            };
            measure_load(&mut runner, &mut report, &scenario, &plan)?;
        }
    }
    runner.finish(&mut report, "")?;
    Ok(report)
}

fn measure_load(runner: &mut Runner, report: &mut Report, scenario: &str, plan: &Plan) -> Fallible<()> {
    let ours = runner.play(scenario, Contender::ttft(OBJECTIVE), plan)?;
    for (what, value) in figures(&ours) {
        report.figure(format!("{scenario}: {what}"), value);
    }
    let stock = runner.play(scenario, Contender::Stock, plan)?;
    for (what, value) in figures(&stock) {
        report.peer(&Contender::Stock.name(), format!("{scenario}: {what}"), value);
    }
    let mut best: Option<Run> = None;
    for fixed in best_fixed(&runner.engine, plan)? {
        let run = runner.play(scenario, fixed, plan)?;
        report.peer(&fixed.name(), format!("{scenario}: goodput, calls/s"), run.goodput(OBJECTIVE));
        if best.as_ref().is_none_or(|best| run.goodput(OBJECTIVE) > best.goodput(OBJECTIVE)) {
            best = Some(run);
        }
    }
    let best = best.ok_or("no fixed settings")?;
    for (what, value) in figures(&best) {
        report.peer("best fixed settings", format!("{scenario}: {what}"), value);
    }
    let ratio = ours.goodput(OBJECTIVE) / best.goodput(OBJECTIVE);
    report.bar(format!("{scenario}: goodput / best fixed settings"), ratio, Op::AtLeast, GOODPUT);
    let in_time = ours.admitted_in_time(OBJECTIVE);
    report.bar(format!("{scenario}: share of admitted calls in time"), in_time, Op::AtLeast, IN_TIME);
    Ok(())
}

fn figures(run: &Run) -> Vec<(&'static str, f64)> {
    let mut figures = vec![
        ("goodput, calls/s", run.goodput(OBJECTIVE)),
        ("share of admitted calls in time", run.admitted_in_time(OBJECTIVE)),
    ];
    figures.extend(run.figures());
    figures
}

/// Simulates the fixed settings, and returns those with the best goodput, followed by those beside
/// them in [`CAPS`] and [`WAITS`].
fn best_fixed(engine: &EngineConfig, plan: &Plan) -> Fallible<Vec<Contender>> {
    let settings = CAPS.len() * WAITS.len();
    let goodputs = virtual_time::each(0..settings as u64, |nth| {
        let fixed =
            fixed(nth as usize / WAITS.len(), nth as usize % WAITS.len()).ok_or("no such settings")?;
        Ok(simulate(engine, Duration::ZERO, fixed, plan)?.goodput(OBJECTIVE))
    })?;
    let mut best = 0;
    for (nth, goodput) in goodputs.iter().enumerate() {
        if *goodput > goodputs.get(best).copied().unwrap_or_default() {
            best = nth;
        }
    }
    let (cap, wait) = (best / WAITS.len(), best % WAITS.len());
    let around = [
        (Some(cap), Some(wait)),
        (cap.checked_sub(1), Some(wait)),
        (cap.checked_add(1), Some(wait)),
        (Some(cap), wait.checked_sub(1)),
        (Some(cap), wait.checked_add(1)),
    ];
    Ok(around.into_iter().filter_map(|(cap, wait)| fixed(cap?, wait?)).collect())
}

fn fixed(cap: usize, wait: usize) -> Option<Contender> {
    Some(Contender::fixed(*CAPS.get(cap)?, *WAITS.get(wait)?))
}
