//! Counts the 429s that clients receive after a provider has asked them, with Retry-After, to come
//! back in 3 s. Runs in virtual time.

use std::time::Duration;

use serde_json::json;
use tidegate::config::{Config, Target};
use tidegate::{Gate, Transport};
use tidegate_sim::faults::RateLimitWindow;
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

pub(crate) const SEEDS: Seeds = Seeds::new(11, 30);
const CALLERS: usize = 100;
/// The time in seconds over which the 100 calls arrive.
const OVER_S: f64 = 2.0;
/// The length in seconds of the window in which the provider answers 429. The 100 calls begin to
/// arrive at its beginning.
const WINDOW_S: f64 = 3.0;

#[derive(Clone, Copy)]
struct Scene {
    round_trip_ms: u64,
    /// The number of calls before the window in which the provider answers 429. With 0, the gate
    /// has received no response from the target when the window begins.
    warm: usize,
    /// The value of the Retry-After header. With `None`, it is the rest of the window in whole
    /// seconds.
    retry_after: Option<&'static str>,
}

impl Scene {
    fn name(&self) -> String {
        let warm = if self.warm == 0 { ", cold" } else { "" };
        let retry_after = if self.retry_after.is_some() { ", always 3 s" } else { "" };
        format!("round trip {} ms{warm}{retry_after}", self.round_trip_ms)
    }
}

/// Simulates all scenes on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("cooldown", seeds);
    for round_trip_ms in [5, 50, 300] {
        for (warm, retry_after) in [(20, None), (0, None), (20, Some("3"))] {
            scene(&mut report, seeds, Scene { round_trip_ms, warm, retry_after })?;
        }
    }
    Ok(report)
}

fn scene(report: &mut Report, seeds: Seeds, scene: Scene) -> Fallible<()> {
    let name = scene.name();
    eprintln!("{name}");
    let runs = virtual_time::each(seeds, |seed| play(scene, None, seed))?;
    for (figure, pick) in FIGURES {
        report.figure(format!("{name}: {figure}"), Spread::of(runs.iter().map(pick)));
    }
    let besides = Spread::of(runs.iter().map(|r| r.besides)).most;
    report.bar(format!("{name}: {BESIDES}"), besides, Op::AtMost, 5.0);
    let failed = Spread::of(runs.iter().map(|r| r.failed)).most;
    report.bar_as(format!("{name}: {FAILED}"), json!(failed), "=", json!(0), failed == 0.0);
    let deadline = Duration::from_secs(600);
    for rule in [Rule::openai(deadline), Rule::four(deadline)] {
        let runs = virtual_time::each(seeds, |seed| play(scene, Some(rule), seed))?;
        for (figure, pick) in FIGURES {
            report.peer(rule.name(), format!("{name}: {figure}"), Spread::of(runs.iter().map(pick)));
        }
    }
    Ok(())
}

const REFUSED: &str = "429s";
/// The name of the figure that counts the 429s of attempts that were sent after the first 429 had
/// arrived at the client.
const BESIDES: &str = "429s besides those in flight at the first";
const FAILED: &str = "failed calls";
const LAST: &str = "s from the window's end to the last answer";
const PEAK: &str = "most attempts in one second after the window";

struct Run {
    refused: f64,
    besides: f64,
    failed: f64,
    last: f64,
    peak: f64,
}

type Pick = fn(&Run) -> f64;
const FIGURES: &[(&str, Pick)] = &[
    (REFUSED, |r| r.refused),
    (BESIDES, |r| r.besides),
    (FAILED, |r| r.failed),
    (LAST, |r| r.last),
    (PEAK, |r| r.peak),
];

fn play(scene: Scene, naive: Option<Rule>, seed: u64) -> Fallible<Run> {
    virtual_time::run(seed, async move {
        let opens = scene.warm as f64 * 0.1;
        let (from_s, until_s) = (opens, opens + WINDOW_S);
        let retry_after = scene.retry_after.map(str::to_owned);
        let rate_limit_windows = vec![RateLimitWindow { from_s, until_s, retry_after }];
        let faults = Faults { rate_limit_windows, ..Faults::default() };
        let simulator = Simulator::new(steady(Duration::from_millis(200), faults))?;
        let round_trip = Duration::from_millis(scene.round_trip_ms);
        let transport = simulator_transport(&simulator, round_trip);
        let caller = match naive {
            Some(rule) => rule.over(transport),
            None => {
                let config = Config::builder().target(Target::new("sim").url(URL).cap(64)).build()?;
                Transport::new(Gate::over(config, transport)?.client())
            }
        };
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut times = Arrivals::Paced.draw(&mut rng, Duration::ZERO, 10.0, scene.warm);
        let rate = CALLERS as f64 / OVER_S;
        // Nothing may be in flight half a round trip before the window opens.
        let begin = Duration::from_secs_f64(opens) + if scene.warm > 0 { round_trip } else { Duration::ZERO };
        times.extend(Arrivals::Paced.draw(&mut rng, begin, rate, CALLERS));
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for at in times {
            let caller = caller.clone();
            tasks.spawn(async move {
                sleep_until(start + at).await;
                let ask = Ask { tenant: "a", prompt: 8, output: STEADY_TOKENS, stream: true };
                let seen = call(caller, ask.request(URL)).await;
                (seen.ok, (at + seen.took).as_secs_f64())
            });
        }
        let seen = tasks.join_all().await;
        let attempts = simulator.stats().attempts;
        let refused: Vec<f64> =
            attempts.iter().filter(|a| a.status == Some(429)).map(|a| a.arrived_s).collect();
        // The first 429 is received half a round trip after it was sent. Attempts sent by then
        // arrive within another half.
        let known = refused.first().map_or(f64::INFINITY, |first| first + round_trip.as_secs_f64());
        let after: Vec<f64> = attempts.iter().map(|a| a.arrived_s).filter(|at| *at >= until_s).collect();
        let peak = |from: f64| after.iter().filter(|at| (from..from + 1.0).contains(*at)).count() as f64;
        Ok(Run {
            refused: refused.len() as f64,
            // One millisecond for the granularity of the timer.
            besides: refused.iter().filter(|at| **at > known + 0.001).count() as f64,
            failed: seen.iter().filter(|(ok, _)| !ok).count() as f64,
            last: seen.iter().map(|(_, end)| *end).fold(0.0, f64::max) - until_s,
            peak: after.iter().map(|at| peak(*at)).fold(0.0, f64::max),
        })
    })
}
