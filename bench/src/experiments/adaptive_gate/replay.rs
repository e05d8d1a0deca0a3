//! Replays scenarios of `adaptive` through the client, in three variants: the adaptive limit with
//! an objective and a maximum queue wait, fixed caps in the same gate, and the limit without a
//! gate.

use std::ops::RangeInclusive;

use tidegate::config::{AdaptiveConfig, Config, Target};

use super::run_client::play;
use crate::Fallible;
use crate::client_call::URL;
use crate::experiments::adaptive::contender::{Fixed, Ours};
use crate::experiments::adaptive::figures::{self, Figures};
use crate::experiments::adaptive::oracle::Oracle;
use crate::experiments::adaptive::prepared_scenario::{GRID, PreparedScenario, TERMS};
use crate::experiments::adaptive::run_records::{RunInputs, RunResult};
use crate::experiments::adaptive::scenarios::{self, Scenario};
use crate::experiments::adaptive::workload::Part;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time::{self, time_origin};

pub(super) const SEEDS: Seeds = Seeds::new(101, 102);

/// Names of the replayed scenarios.
const SCENARIOS: [&str; 6] = [
    "saturated",
    "capacity halves and returns",
    "streams of a minute",
    "provider takes 40 at once",
    "30 % leave before their first token",
    "half do not stream",
];

/// The seeds on which the simulated client of `adaptive` searches for the best fixed cap. Caps near
/// it then run through the gate on the reported seeds.
const CALIBRATION: RangeInclusive<u64> = 1..=2;
const FINE: [f64; 8] = [0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.5];
const AROUND: [f64; 3] = [0.75, 1.0, 1.33];

/// The minimum number of calls served in time, divided by that of the best fixed cap, for the
/// experiment to pass.
const GOODPUT: f64 = 0.95;
/// The percentage of calls that meet the objective may be at most this many points below that of
/// the best fixed cap, for the experiment to pass.
const BEHIND: f64 = 1.0;

/// Simulates the scenarios on `seeds`, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for name in SCENARIOS {
        let replay = Replay::new(name, seeds)?;
        eprintln!("{name}: the best cap is about {}", replay.cap);
        replay.measure(report)?;
    }
    Ok(())
}

/// Simulates the scenarios whose names contain `part`. Prints the state of the gate, and the number
/// of calls served in time.
pub(super) fn inspect(part: &str, seed: u64) -> Fallible<()> {
    for name in SCENARIOS.iter().filter(|name| name.contains(part)) {
        let prepared = prepared(name)?;
        println!("{name}");
        let inputs = prepared.inputs(seed);
        let played = play(&prepared.scenario.server, &inputs, &ours()?, true)?;
        let good: Vec<_> =
            prepared.phases().into_iter().map(|span| figures::good(&inputs, &played, span)).collect();
        println!("served in time, by phase: {good:?} of {}", inputs.arrivals.len());
    }
    Ok(())
}

fn prepared(name: &str) -> Fallible<PreparedScenario> {
    let scenario = scenarios::all().into_iter().find(|scenario| scenario.name == name);
    PreparedScenario::new(shorter(scenario.ok_or("no such scenario")?), Part::Second)
}

/// Returns the scenario with each phase half as long. The effects of a phase appear within seconds.
fn shorter(mut scenario: Scenario) -> Scenario {
    for phase in &mut scenario.phases {
        phase.seconds /= 2;
    }
    scenario
}

fn target() -> Target {
    Target::new("sim").url(URL).ttft(TERMS.objective).wait(TERMS.wait)
}

fn ours() -> Fallible<Config> {
    Ok(Config::builder().target(target()).build()?)
}

fn capped(cap: usize) -> Fallible<Config> {
    Ok(Config::builder().target(target().cap(cap).fixed()).build()?)
}

struct Replay {
    name: &'static str,
    prepared: PreparedScenario,
    cap: usize,
    seeds: Seeds,
}

/// The results of one variant over all seeds: the number of calls served in time (`good`), the
/// share, from 0 to 1, of the calls sent upstream that had their first token in time (`met`), and
/// the figures of each seed.
struct Outcome {
    good: f64,
    met: f64,
    of_each: Vec<Figures>,
}

impl Replay {
    fn new(name: &'static str, seeds: Seeds) -> Fallible<Self> {
        let prepared = prepared(name)?;
        let courses: Vec<RunInputs> = CALIBRATION.map(|seed| prepared.inputs(seed)).collect();
        let served = |cap: usize| -> usize {
            let runs = courses.iter().map(|inputs| {
                let played = prepared.play(inputs, &mut Fixed(cap), false);
                good(&prepared, inputs, &played)
            });
            runs.sum()
        };
        // If several caps are equally good, the smallest is chosen.
        let best = |mut caps: Vec<usize>| {
            caps.sort_unstable_by(|a, b| b.cmp(a));
            caps.into_iter().max_by_key(|cap| served(*cap)).unwrap_or(1)
        };
        let rough = best(GRID.into());
        let cap = best(FINE.iter().map(|share| scaled(rough, *share)).chain([rough]).collect());
        Ok(Self { name, prepared, cap, seeds })
    }

    fn measure(&self, report: &mut Report) -> Fallible<()> {
        let ours = self.outcome(|inputs| play(&self.prepared.scenario.server, inputs, &ours()?, false))?;
        let mut caps = Vec::new();
        for share in AROUND {
            let cap = scaled(self.cap, share);
            let config = capped(cap)?;
            let of = self.outcome(|inputs| play(&self.prepared.scenario.server, inputs, &config, false))?;
            eprintln!("    cap {cap}: {:.0} in time, {:.1} % met", of.good, of.met * 100.0);
            caps.push((cap, of));
        }
        let best = caps.into_iter().max_by(|(_, a), (_, b)| a.good.total_cmp(&b.good));
        let (cap, best) = best.ok_or("no cap was tried")?;
        let alone = self.outcome(|inputs| {
            let mut policy = Ours::new(&TERMS, AdaptiveConfig::default(), time_origin());
            Ok(self.prepared.play(inputs, &mut policy, false))
        })?;
        let fixed_alone = self.outcome(|inputs| Ok(self.prepared.play(inputs, &mut Fixed(cap), false)))?;
        eprintln!("    ours: {:.0} in time, {:.1} % met", ours.good, ours.met * 100.0);
        let key = |what: &str| format!("{}: {what}", self.name);
        let shares = ours.of_each.iter().zip(&best.of_each);
        let shares = Spread::of(shares.map(|(a, b)| a.all_good() as f64 / b.all_good().max(1) as f64));
        report.figure(key("goodput / the best cap's"), shares);
        report.figure(key("objective met, %"), ours.met * 100.0);
        report.figure(
            key("p99 TTFT of the worst phase, s"),
            Spread::of(ours.of_each.iter().map(|figures| figures.ttft_p99_s)),
        );
        report.figure(
            key("turned away, % of calls"),
            Spread::of(ours.of_each.iter().map(|figures| figures.turned_away * 100.0)),
        );
        report.peer("the best cap", key("cap"), cap);
        report.peer("the best cap", key("objective met, %"), best.met * 100.0);
        report.peer(
            "the best cap",
            key("turned away, % of calls"),
            Spread::of(best.of_each.iter().map(|figures| figures.turned_away * 100.0)),
        );
        report.peer(
            "the policy by itself",
            key("goodput / the best cap's"),
            alone.good / fixed_alone.good.max(1.0),
        );
        report.peer("the policy by itself", key("objective met, %"), alone.met * 100.0);
        report.bar(key("goodput / the best cap's"), ours.good / best.good.max(1.0), Op::AtLeast, GOODPUT);
        let behind = (best.met - ours.met) * 100.0;
        report.bar(key("objective met, points behind the best cap"), behind, Op::AtMost, BEHIND);
        Ok(())
    }

    fn outcome(&self, play: impl Fn(&RunInputs) -> Fallible<RunResult> + Sync) -> Fallible<Outcome> {
        let phases = self.prepared.phases().len();
        // No figure used here depends on the oracle's band.
        let oracle = Oracle { limits: vec![self.cap; phases], bands: vec![(self.cap, self.cap); phases] };
        let of_each = virtual_time::each(self.seeds, |seed| {
            let inputs = self.prepared.inputs(seed);
            Ok(Figures::of(&self.prepared, &inputs, &oracle, &play(&inputs)?))
        })?;
        let sum = |of: fn(&Figures) -> usize| of_each.iter().map(of).sum::<usize>() as f64;
        let met = sum(|figures| figures.sent.met) / sum(|figures| figures.sent.of).max(1.0);
        Ok(Outcome { good: sum(Figures::all_good), met, of_each })
    }
}

fn good(prepared: &PreparedScenario, inputs: &RunInputs, played: &RunResult) -> usize {
    prepared.phases().into_iter().map(|span| figures::good(inputs, played, span)).sum()
}

fn scaled(cap: usize, share: f64) -> usize {
    ((cap as f64 * share).round() as usize).clamp(1, TERMS.ceiling)
}
