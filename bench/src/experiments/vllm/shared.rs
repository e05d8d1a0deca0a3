//! `vllm-share`: eight gates that share an adaptive limit in front of one server, over a local
//! broker and over Redis, beside one gate, and beside eight gates that share nothing.

use std::time::Duration;

use super::Options;
use super::contender::{Contender, Store};
use super::engines::{Profile, capacity};
use super::load::{Lengths, Load, Plan};
use super::run::Run;
use super::runner::Runner;
use crate::Fallible;
use crate::report::{Op, Report};

/// No constant of the adaptive limit or of the share was chosen on this seed.
const SEED: u64 = 68;

const GATES: usize = 8;
const OBJECTIVE: Duration = Duration::from_secs(1);
/// The number of callers of a closed loop in which nothing is set.
const CALLERS: usize = 64;
/// Calls per second, divided by the capacity of the server.
const LOADS: [f64; 2] = [1.5, 3.0];
const LENGTHS: Lengths = Lengths { prompt: (20, 200), output: (16, 48) };

/// The minimum goodput, divided by that of one gate.
const GOODPUT: f64 = 0.95;
/// By how much the share of the admitted calls that meet the objective may be less than with one
/// gate.
const IN_TIME: f64 = 0.02;

/// Runs each load with all contenders, and returns the report.
pub(crate) fn measure(options: &Options) -> Fallible<Report> {
    let mut runner = Runner::over_sockets(options, Profile::Tenants16)?;
    let mut report = options.report("vllm-share", [SEED]);
    let scenario = format!("{CALLERS} callers, nothing set");
    if options.includes(&scenario) {
        let plan = Plan::closed(CALLERS, LENGTHS, options.lasts(), SEED);
        measure_load(&mut runner, &mut report, &scenario, None, &plan)?;
    }
    for load in LOADS {
        let scenario = format!("{load} times the capacity, ttft {} s", OBJECTIVE.as_secs());
        if options.includes(&scenario) {
            let load = Load::Open(load * capacity(&runner.engine, LENGTHS));
            let plan = Plan { load, lengths: LENGTHS, lasts: options.lasts(), tail: OBJECTIVE, seed: SEED };
            measure_load(&mut runner, &mut report, &scenario, Some(OBJECTIVE), &plan)?;
        }
    }
    runner.finish(&mut report, "")?;
    Ok(report)
}

fn measure_load(
    runner: &mut Runner,
    report: &mut Report,
    scenario: &str,
    ttft: Option<Duration>,
    plan: &Plan,
) -> Fallible<()> {
    let gates = |count, store| Contender::Gates { count, store, ttft };
    let local = runner.play(scenario, gates(GATES, Store::Local), plan)?;
    let alone = runner.play(scenario, gates(1, Store::Off), plan)?;
    let over_redis = runner.play(scenario, gates(GATES, Store::Redis), plan)?;
    let apart = runner.play(scenario, gates(GATES, Store::Off), plan)?;
    for (peer, run) in [("one gate", &alone), ("eight gates that share nothing", &apart)] {
        for (what, value) in figures(run, ttft) {
            report.peer(peer, format!("{scenario}: {what}"), value);
        }
    }
    let good = |run: &Run| ttft.map_or_else(|| run.tokens_per_second(), |ttft| run.goodput(ttft));
    for (scenario, run) in [(scenario.to_owned(), &local), (format!("{scenario}, Redis"), &over_redis)] {
        for (what, value) in figures(run, ttft) {
            report.figure(format!("{scenario}: {what}"), value);
        }
        let ratio = good(run) / good(&alone);
        report.bar(format!("{scenario}: goodput / one gate"), ratio, Op::AtLeast, GOODPUT);
        if let Some(ttft) = ttft {
            let in_time = run.admitted_in_time(ttft) - alone.admitted_in_time(ttft);
            let what = format!("{scenario}: share of admitted calls in time, less that of one gate");
            report.bar(what, in_time, Op::AtLeast, -IN_TIME);
        }
    }
    Ok(())
}

fn figures(run: &Run, ttft: Option<Duration>) -> Vec<(&'static str, f64)> {
    let mut figures = run.figures().to_vec();
    if let Some(ttft) = ttft {
        figures.push(("goodput, calls/s", run.goodput(ttft)));
        figures.push(("share of admitted calls in time", run.admitted_in_time(ttft)));
    }
    figures
}
