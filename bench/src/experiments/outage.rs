//! Measures, in virtual time, how many attempts are sent during an outage of one minute, and how
//! quickly calls that the gate held back are sent afterwards.

mod partial_outages;

use std::time::Duration;

use serde_json::json;
use tidegate::config::{Config, LimitSettings, Target};
use tidegate::{Gate, Transport};
use tidegate_sim::faults::{Outage, OutageMode};
use tidegate_sim::scenario::Arrivals;
use tidegate_sim::{Faults, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::time::{Instant, sleep_until};

use crate::Fallible;
use crate::client_call::{Ask, URL, call};
use crate::report::{Op, Report, Spread};
use crate::retrying_clients::Rule;
use crate::seeds::Seeds;
use crate::unlimited_simulators::{STEADY_TOKENS, steady};
use crate::virtual_time;

/// The seeds of the reported figures. Runs on seeds 11 to 20 revealed faults of the core, which
/// were then fixed.
pub(crate) const SEEDS: Seeds = Seeds::new(31, 40);
/// Start of the outage, in seconds since the start of the run.
const DOWN: f64 = 30.0;
/// End of the outage, in seconds since the start of the run.
const UP: f64 = 90.0;
/// End of the arrivals, in seconds since the start of the run.
const END: f64 = 150.0;

/// A setting of the experiment: the load, the deadline of calls, and the behaviour of the upstream.
#[derive(Clone, Copy, Debug)]
struct Scene {
    mode: OutageMode,
    deadline: u64,
    /// Calls per second.
    rate: f64,
    service_ms: u64,
    round_trip_ms: u64,
    cap: usize,
    arrivals: Arrivals,
    stream: bool,
    /// The share of attempts, from 0 to 1, that fail with a 500 during the whole run.
    errors: f64,
    /// The number of concurrent calls above which the upstream answers 429. `None` if there is no
    /// such limit.
    limit: Option<usize>,
    /// Whether the limit adapts, up to the cap.
    adaptive: bool,
    /// Whether the first call arrives at the start of the outage. Otherwise, calls arrive from the
    /// start of the run.
    cold: bool,
}

/// The basic setting, from which the others differ: 10 calls per second to an upstream that answers
/// 503 during the outage.
const BASE: Scene = Scene {
    mode: OutageMode::Unavailable,
    deadline: 300,
    rate: 10.0,
    service_ms: 500,
    round_trip_ms: 20,
    cap: 64,
    arrivals: Arrivals::Paced,
    stream: true,
    errors: 0.0,
    limit: None,
    adaptive: false,
    cold: false,
};

impl Scene {
    fn name(&self) -> String {
        let Self {
            mode,
            deadline,
            rate,
            service_ms,
            round_trip_ms,
            cap,
            arrivals,
            stream,
            errors,
            limit,
            adaptive,
            cold,
        } = self;
        let mode = if *mode == OutageMode::Refuse { "refused" } else { "503" };
        let mut name = format!("{mode}, {rate}/s, deadline {deadline} s");
        for (differs, what) in [
            (*service_ms != BASE.service_ms, format!("service {service_ms} ms")),
            (*round_trip_ms != BASE.round_trip_ms, format!("round trip {round_trip_ms} ms")),
            (*cap != BASE.cap, format!("cap {cap}")),
            (*arrivals != BASE.arrivals, "Poisson".to_owned()),
            (*stream != BASE.stream, "not streamed".to_owned()),
            (*errors != BASE.errors, format!("{:.0} % errors", errors * 100.0)),
            (*cold, "down from the start".to_owned()),
            (*adaptive, "adaptive limit".to_owned()),
            (limit.is_some(), format!("upstream takes {} at once", limit.unwrap_or_default())),
        ] {
            if differs {
                name = format!("{name}, {what}");
            }
        }
        name
    }
}

/// Returns all settings: combinations of outage, deadline and call rate, and special cases.
fn scenes() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for mode in [OutageMode::Unavailable, OutageMode::Refuse] {
        for deadline in [30, 300] {
            scenes.extend([2.0, 10.0, 50.0].map(|rate| Scene { mode, deadline, rate, ..BASE }));
        }
    }
    scenes.extend([
        Scene { service_ms: 50, ..BASE },
        Scene { service_ms: 5_000, ..BASE },
        Scene { round_trip_ms: 300, rate: 50.0, ..BASE },
        Scene { cap: 8, ..BASE },
        Scene { cap: 1_000, rate: 50.0, ..BASE },
        Scene { service_ms: 20_000, rate: 2.0, ..BASE },
        Scene { stream: false, ..BASE },
        Scene { stream: false, service_ms: 5_000, ..BASE },
        Scene { arrivals: Arrivals::Poisson, ..BASE },
        Scene { rate: 1.0, ..BASE },
        Scene { rate: 4.0, ..BASE },
        Scene { errors: 0.05, ..BASE },
        Scene { errors: 0.1, rate: 50.0, ..BASE },
        Scene { cold: true, ..BASE },
        Scene { cold: true, mode: OutageMode::Refuse, ..BASE },
        // About twice the concurrency that the steady rate needs.
        Scene { limit: Some(12), ..BASE },
        Scene { limit: Some(60), rate: 50.0, ..BASE },
        Scene { limit: Some(12), cap: 256, ..BASE },
        Scene { limit: Some(12), arrivals: Arrivals::Poisson, ..BASE },
        Scene { limit: Some(12), stream: false, ..BASE },
        Scene { limit: Some(120), cap: 256, service_ms: 5_000, ..BASE },
        Scene { limit: Some(12), adaptive: true, ..BASE },
        Scene { limit: Some(60), adaptive: true, rate: 50.0, ..BASE },
        Scene { rate: 150.0, service_ms: 200, ..BASE },
    ]);
    scenes
}

/// Simulates all settings on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("outage", seeds);
    partial_outages::measure(&mut report, seeds)?;
    for scene in scenes() {
        let name = scene.name();
        eprintln!("{name}");
        let runs = virtual_time::each(seeds, |seed| play(scene, None, seed))?;
        for (figure, pick) in FIGURES {
            report.figure(format!("{name}: {figure}"), Spread::of(runs.iter().map(pick)));
        }
        bars(&mut report, scene, &runs);
        let deadline = Duration::from_secs(scene.deadline);
        for rule in [Rule::four(deadline), Rule::openai(deadline), Rule::persistent(deadline)] {
            let runs = virtual_time::each(seeds, |seed| play(scene, Some(rule), seed))?;
            for (figure, pick) in FIGURES {
                report.peer(rule.name(), format!("{name}: {figure}"), Spread::of(runs.iter().map(pick)));
            }
        }
    }
    Ok(report)
}

/// Records the pass criteria of a setting, which its worst seed has to meet.
fn bars(report: &mut Report, scene: Scene, runs: &[Run]) {
    let name = scene.name();
    let spread = |pick: fn(&Run) -> f64| Spread::of(runs.iter().map(pick));
    report.bar(format!("{name}: {PER_CALL}"), spread(|r| r.per_call).most, Op::AtMost, 1.2);
    report.bar(format!("{name}: {PER_AFFECTED}"), spread(|r| r.per_affected).most, Op::AtMost, 1.2);
    let again = spread(|r| r.again).least;
    report.bar(format!("{name}: {AGAIN}"), again, Op::AtLeast, 0.95);
    // With random errors, a call may exhaust its attempts regardless of the gate.
    if scene.deadline >= 300 && scene.errors == 0.0 {
        let failed = spread(|r| r.failed).most;
        report.bar_as(format!("{name}: {FAILED}"), json!(failed), "=", json!(0), failed == 0.0);
    }
    // With random errors, a second's worth of attempts cannot yield a second's worth of accepted
    // ones.
    if scene.errors == 0.0 {
        report.bar(format!("{name}: {TO_FULL}"), spread(|r| r.to_full).most, Op::AtMost, 2.0);
    }
    report.bar(format!("{name}: {PEAK}"), spread(|r| r.peak).most, Op::AtMost, 1.5);
    report.bar(format!("{name}: {PEAK_FIRST}"), spread(|r| r.peak_first).most, Op::AtMost, 1.5);
}

const PER_CALL: &str = "attempts a call";
/// The name of the figure for the attempts per call, over the calls that were made during the
/// outage.
const PER_AFFECTED: &str = "attempts a call made while down";
const FAILED: &str = "failed calls";
/// The name of the figure for failed calls whose deadline was at least 5 s after the recovery of
/// the upstream.
const NEEDLESS: &str = "failed with 5 s or more to go at recovery";
/// The name of the figure for the seconds from the recovery to the first period of one second in
/// which as many attempts are accepted as calls arrive per second.
const TO_FULL: &str = "s to full rate";
const PEAK: &str = "peak of the first second after recovery, of steady";
const PEAK_FIRST: &str = "peak of the first second after the first accepted, of steady";
const PEAK_LATER: &str = "peak of any second after recovery, of steady";

/// The name of the figure for the number of attempts that the upstream accepts in the last 20 s of
/// arrivals, divided by the calls made then. No call from the outage is left at that time, so the
/// figure shows that the recovery is permanent.
const AGAIN: &str = "accepted in the last 20 s of arrivals, of those made then";

/// The figures of one run.
#[derive(Debug)]
struct Run {
    per_call: f64,
    per_affected: f64,
    failed: f64,
    needless: f64,
    to_full: f64,
    peak: f64,
    peak_first: f64,
    peak_later: f64,
    again: f64,
}

type Pick = fn(&Run) -> f64;
const FIGURES: &[(&str, Pick)] = &[
    (PER_CALL, |r| r.per_call),
    (PER_AFFECTED, |r| r.per_affected),
    (FAILED, |r| r.failed),
    (NEEDLESS, |r| r.needless),
    (TO_FULL, |r| r.to_full),
    (PEAK, |r| r.peak),
    (PEAK_FIRST, |r| r.peak_first),
    (PEAK_LATER, |r| r.peak_later),
    (AGAIN, |r| r.again),
];

fn play(scene: Scene, naive: Option<Rule>, seed: u64) -> Fallible<Run> {
    virtual_time::run(seed, async move {
        let outages = vec![Outage { from_s: DOWN, until_s: UP, mode: scene.mode }];
        let service = Duration::from_millis(scene.service_ms);
        let simulator = Simulator::new(steady(
            service,
            Faults {
                outages,
                error_500: scene.errors,
                concurrency_limit: scene.limit,
                seed,
                ..Faults::default()
            },
        ))?;
        let transport = simulator_transport(&simulator, Duration::from_millis(scene.round_trip_ms));
        let caller = match naive {
            Some(rule) => rule.over(transport),
            None => Transport::new(Gate::over(config(scene)?, transport)?.client()),
        };
        let count = (scene.rate * END) as usize;
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        let first = Duration::from_secs_f64(if scene.cold { DOWN } else { 0.0 });
        let times = scene.arrivals.draw(&mut rng, Duration::ZERO, scene.rate, count);
        for at in times.into_iter().filter(|at| *at >= first) {
            let caller = caller.clone();
            tasks.spawn(async move {
                sleep_until(start + at).await;
                let ask = Ask { tenant: "a", prompt: 8, output: STEADY_TOKENS, stream: scene.stream };
                let seen = call(caller, ask.request(URL)).await;
                (at.as_secs_f64(), seen.ok)
            });
        }
        let calls = tasks.join_all().await;
        Ok(figures(scene, &calls, &simulator.stats()))
    })
}

fn config(scene: Scene) -> Fallible<Config> {
    let target = Target::new("sim").url(URL).cap(scene.cap).deadline(Duration::from_secs(scene.deadline));
    let target = if scene.adaptive { target.limit(LimitSettings::new()) } else { target };
    Ok(Config::builder().target(target).build()?)
}

fn figures(scene: Scene, calls: &[(f64, bool)], stats: &tidegate_sim::Stats) -> Run {
    let accepted: Vec<f64> =
        stats.attempts.iter().filter(|a| a.status == Some(200)).map(|a| a.arrived_s).collect();
    let after: Vec<f64> = stats.attempts.iter().map(|a| a.arrived_s).filter(|at| *at >= UP).collect();
    let in_second = |times: &[f64], from: f64| {
        times.iter().filter(|at| (from..from + 1.0).contains(*at)).count() as f64 / scene.rate
    };
    let while_down: Vec<bool> =
        calls.iter().filter(|(at, _)| (DOWN..UP).contains(at)).map(|(_, ok)| *ok).collect();
    // These attempts belong to calls made during the outage, except for a few whose request was in
    // flight when the outage began.
    let in_vain =
        stats.attempts.iter().filter(|a| a.status != Some(200) && (DOWN..UP).contains(&a.arrived_s)).count();
    let served = while_down.iter().filter(|ok| **ok).count();
    let first = accepted.iter().copied().find(|at| *at >= UP);
    let full = accepted
        .iter()
        .copied()
        .find(|at| *at >= UP && in_second(&accepted, *at) * scene.rate >= scene.rate.floor());
    let deadline = scene.deadline as f64;
    let held_until = |at: &(f64, bool)| at.0 < UP && !at.1 && at.0 + deadline >= UP + 5.0;
    let last = |times: &[f64]| times.iter().filter(|at| (END - 20.0..END).contains(*at)).count() as f64;
    Run {
        per_call: stats.total_attempts as f64 / calls.len() as f64,
        per_affected: (in_vain + served) as f64 / while_down.len() as f64,
        failed: calls.iter().filter(|(_, ok)| !ok).count() as f64,
        needless: calls.iter().filter(|call| held_until(call)).count() as f64,
        to_full: full.map_or(f64::INFINITY, |at| at - UP),
        peak: in_second(&after, UP),
        peak_first: first.map_or(f64::INFINITY, |at| in_second(&after, at)),
        peak_later: after.iter().map(|at| in_second(&after, *at)).fold(0.0, f64::max),
        again: last(&accepted) / last(&calls.iter().map(|(at, _)| *at).collect::<Vec<_>>()),
    }
}
