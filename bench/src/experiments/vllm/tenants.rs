//! `vllm-tenants`: a burst of one of three tenants, with nothing configured but the tenants' names,
//! beside the best fixed bounds on the tenant that bursts.
//!
//! The bounds are searched in the simulator, as in `burst-default`: the best have the most served
//! calls of the burst per time to first token of the other tenants (their *power*). The server then
//! runs them and the bounds beside them, and those with the highest power there are the reference.
//!
//! A or C has about a hundred calls in a run, so one or two calls decide its p99. Therefore the
//! gate and the reference run with several seeds, and medians are compared.

use std::time::Duration;

use tidegate_sim::engine::EngineConfig;
use tidegate_sim::scenario::quantile;

use super::Options;
use super::contender::Contender;
use super::engines::{Profile, capacity};
use super::load::{Burst, Call, End, Lengths, Load, Plan, TenantLoad};
use super::run::Run;
use super::runner::{Runner, simulate};
use super::tenant_rules::{BURSTS, STEADY, TenantRule};
use crate::report::{Op, Report, Spread};
use crate::{Fallible, virtual_time};

/// No constant of the tenants' shares was chosen on these seeds. All contenders run with the first
/// one.
const SEEDS: [u64; 3] = [SEED, 75, 76];
const SEED: u64 = 71;
/// The seeds on which the bounds are searched.
const SEARCH: [u64; 3] = [72, 73, 74];

/// Calls per second of each tenant, divided by the capacity of the server.
const STEADY_LOAD: f64 = 0.15;
const BURSTS_LOAD: f64 = 0.2;
/// The rate of the burst, divided by the tenant's usual rate.
const TIMES: f64 = 10.0;
/// When the burst begins and ends, divided by the time in which calls begin.
const BURST: (f64, f64) = (1.0 / 3.0, 7.0 / 12.0);
/// Time after the last counted call, in which it gets its first token.
const TAIL: Duration = Duration::from_secs(10);
/// The same lengths as in `vllm-truth`.
const LENGTHS: Lengths = Lengths { prompt: (20, 200), output: (16, 48) };

/// The bounds that are simulated to find the best ones.
const AWAITING: [usize; 7] = [1, 2, 3, 4, 6, 10, 16];
const SCENARIOS: [(&str, Profile, [usize; 8]); 2] = [
    ("16 sequences", Profile::Tenants16, [4, 6, 8, 10, 12, 14, 16, 24]),
    ("256 sequences", Profile::Tenants256, [8, 16, 32, 64, 96, 128, 192, 256]),
];

/// The maximum p99 TTFT of a tenant that does not burst, divided by that with the best bounds.
const TTFT: f64 = 1.15;
/// The highest ratio that is reported. A call without a first token makes a ratio infinite.
const MOST_RATIO: f64 = 1e3;
/// The minimum number of served calls of the tenant that bursts, divided by that with the best
/// bounds.
const SERVED: f64 = 0.9;

/// Runs the burst on each server with all contenders, and returns the report.
pub(crate) fn measure(options: &Options) -> Fallible<Report> {
    let mut report = options.report("vllm-tenants", SEEDS);
    for (scenario, profile, in_flight) in SCENARIOS {
        if options.includes(scenario) {
            let mut runner = Runner::new(options, profile)?;
            measure_burst(&mut runner, &mut report, scenario, &in_flight, options.lasts())?;
            // The next server starts after this one has stopped, because servers share the cores.
            runner.finish(&mut report, &format!("{scenario}: "))?;
        }
    }
    Ok(report)
}

fn measure_burst(
    runner: &mut Runner,
    report: &mut Report,
    scenario: &str,
    in_flight: &[usize],
    lasts: Duration,
) -> Fallible<()> {
    let plans = SEEDS.map(|seed| plan(&runner.engine, lasts, seed));
    let [first, others @ ..] = &plans;
    let bounds = best_bounds(&runner.engine, lasts, in_flight)?;
    let mut play = |rule, plan| runner.play(scenario, Contender::Tenants(rule), plan);
    let mut best: Option<(TenantRule, Run)> = None;
    for rule in bounds {
        let run = play(rule, first)?;
        for (what, value) in figures(&run) {
            report.peer(&rule.name(), format!("{scenario}, {what}"), value);
        }
        if best.as_ref().is_none_or(|(_, best)| power(&run) > power(best)) {
            best = Some((rule, run));
        }
    }
    let (rule, run) = best.ok_or("no bounds")?;
    let (mut best, mut ours) = (vec![run], vec![play(TenantRule::Names, first)?]);
    for plan in others {
        best.push(play(rule, plan)?);
        ours.push(play(TenantRule::Names, plan)?);
    }
    for (what, value) in medians(&ours) {
        report.figure(format!("{scenario}, {what}"), value);
    }
    report.peer("best bounds", format!("{scenario}: bounds"), rule.name());
    for (what, value) in medians(&best) {
        report.peer("best bounds", format!("{scenario}, {what}"), value);
    }
    let ratio = |figure: &dyn Fn(&Run) -> f64| median(&ours, figure) / median(&best, figure);
    for tenant in STEADY {
        report.bar(
            format!("{scenario}, {tenant}: p99 TTFT / best bounds"),
            ratio(&|run| p99_ms(run, tenant)).min(MOST_RATIO),
            Op::AtMost,
            TTFT,
        );
    }
    report.figure(format!("{scenario}: power / best bounds"), ratio(&power));
    report.bar(format!("{scenario}, {BURSTS}: served / best bounds"), ratio(&served), Op::AtLeast, SERVED);
    let others = [
        Contender::Tenants(TenantRule::WithoutNames),
        Contender::Tenants(TenantRule::PostCaps),
        Contender::Stock,
    ];
    for contender in others {
        let run = runner.play(scenario, contender, first)?;
        for (what, value) in figures(&run) {
            report.peer(&contender.name(), format!("{scenario}, {what}"), value);
        }
        if contender == Contender::Tenants(TenantRule::WithoutNames) {
            // The others would be delayed if the names had no effect.
            let beside = best.first().map_or(f64::NAN, worst_p99_ms);
            let ratio = (worst_p99_ms(&run) / beside).min(MOST_RATIO);
            report.bar(
                format!("{scenario}, without tenants' names: worst p99 TTFT / best bounds"),
                ratio,
                Op::AtLeast,
                TTFT,
            );
        }
    }
    Ok(())
}

fn plan(engine: &EngineConfig, lasts: Duration, seed: u64) -> Plan {
    let rate = capacity(engine, LENGTHS);
    let [a, c] = STEADY.map(|name| TenantLoad { name, per_second: STEADY_LOAD * rate, burst: None });
    let per_second = BURSTS_LOAD * rate;
    let burst =
        Burst { from: lasts.mul_f64(BURST.0), to: lasts.mul_f64(BURST.1), per_second: TIMES * per_second };
    let b = TenantLoad { name: BURSTS, per_second, burst: Some(burst) };
    Plan { load: Load::Tenants([a, b, c]), lengths: LENGTHS, lasts, tail: TAIL, seed }
}

/// Simulates the bounds, and returns those with the highest power, followed by those beside them.
fn best_bounds(engine: &EngineConfig, lasts: Duration, in_flight: &[usize]) -> Fallible<Vec<TenantRule>> {
    let rule = |nth: usize, beside: usize| {
        let (in_flight, awaiting) = (*in_flight.get(nth)?, *AWAITING.get(beside)?);
        (awaiting <= in_flight).then_some(TenantRule::Bounds { in_flight, awaiting })
    };
    let mut best = (0.0, 0, 0);
    for nth in 0..in_flight.len() {
        for beside in 0..AWAITING.len() {
            let Some(rule) = rule(nth, beside) else { continue };
            let contender = Contender::Tenants(rule);
            let runs = virtual_time::each(SEARCH, |seed| {
                simulate(engine, Duration::ZERO, contender, &plan(engine, lasts, seed))
            })?;
            let (p99, served) =
                (Spread::of(runs.iter().map(worst_p99_ms)), Spread::of(runs.iter().map(served)));
            eprintln!("    {}: worst p99 {:.0} ms, served {:.0}", rule.name(), p99.median, served.median);
            let power = served.median / p99.median;
            if power > best.0 {
                best = (power, nth, beside);
            }
        }
    }
    let (_, nth, beside) = best;
    let around = [
        (Some(nth), Some(beside)),
        (nth.checked_sub(1), Some(beside)),
        (nth.checked_add(1), Some(beside)),
        (Some(nth), beside.checked_sub(1)),
        (Some(nth), beside.checked_add(1)),
    ];
    Ok(around.into_iter().filter_map(|(nth, beside)| rule(nth?, beside?)).collect())
}

fn figures(run: &Run) -> Vec<(String, f64)> {
    let mut figures = vec![(format!("{BURSTS}: served"), served(run))];
    for tenant in STEADY {
        figures.push((format!("{tenant}: p99 TTFT, ms"), p99_ms(run, tenant)));
    }
    figures.push((format!("{BURSTS}: calls"), of(run, BURSTS).count() as f64));
    figures.extend(run.figures().map(|(what, value)| (format!("all: {what}"), value)));
    figures
}

fn of<'a>(run: &'a Run, tenant: &'a str) -> impl Iterator<Item = &'a Call> {
    run.calls.iter().filter(move |call| call.tenant == Some(tenant))
}

/// Returns the 99th percentile of the TTFT of a tenant's calls in milliseconds. A call without a
/// first token counts as infinitely late.
fn p99_ms(run: &Run, tenant: &str) -> f64 {
    let ttft = |call: &Call| call.ttft.map_or(f64::INFINITY, |ttft| ttft.as_secs_f64() * 1e3);
    quantile(&mut of(run, tenant).map(ttft).collect::<Vec<f64>>(), 0.99)
}

/// Returns the median of a figure over runs with different seeds.
fn median(runs: &[Run], figure: &dyn Fn(&Run) -> f64) -> f64 {
    Spread::of(runs.iter().map(figure)).median
}

/// Returns the median of each figure over runs with different seeds.
fn medians(runs: &[Run]) -> Vec<(String, f64)> {
    let all: Vec<_> = runs.iter().map(figures).collect();
    let names = all.first().into_iter().flatten().enumerate();
    let of_all = |nth: usize| all.iter().filter_map(move |figures| figures.get(nth)).map(|(_, value)| *value);
    names.map(|(nth, (what, _))| (what.clone(), Spread::of(of_all(nth)).median)).collect()
}

fn worst_p99_ms(run: &Run) -> f64 {
    STEADY.iter().map(|tenant| p99_ms(run, tenant)).fold(0.0, f64::max)
}

/// Returns how many calls of the tenant that bursts were answered.
fn served(run: &Run) -> f64 {
    of(run, BURSTS).filter(|call| call.end == End::Answered).count() as f64
}

/// Returns the served calls of the tenant that bursts, divided by the worst p99 TTFT of the others.
fn power(run: &Run) -> f64 {
    served(run) / worst_p99_ms(run)
}
