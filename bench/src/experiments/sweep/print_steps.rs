//! Prints selected sweeps, if wanted step by step, to find out why an answer is wrong.

use clap::Args;
use tidegate_sweep::{SearchSettings, StepResult};

use super::comparison::Verdict;
use super::figures::Figures;
use super::oracle::OracleFile;
use super::prepared_scenario::PreparedScenario;
use super::scenarios;
use crate::seeds::Seeds;
use crate::{Fallible, virtual_time};

/// Options that print some sweeps instead of measuring all of them.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Print the scenarios whose names contain this text, instead of measuring all of them. An
    /// empty text selects all.
    #[arg(long)]
    scenario: Option<String>,
    /// First and last seed, for example `501-510`.
    #[arg(long, default_value = "101-104")]
    seeds: Seeds,
    /// Print the long-run goodput (calls per second) and failed share of each measured cap, instead
    /// of sweeps.
    #[arg(long)]
    curve: bool,
    /// Print each step of each sweep. With a single seed, steps are always printed.
    #[arg(long)]
    steps: bool,
}

impl Inspect {
    /// Returns `true` if `--scenario` was given, so that sweeps are printed instead of measured.
    pub(crate) fn is_requested(&self) -> bool {
        self.scenario.is_some()
    }
}

/// Prints the selected sweeps. Returns an empty text, because everything was printed already.
pub(crate) fn inspect(inspect: &Inspect) -> Fallible<String> {
    let name_part = inspect.scenario.clone().unwrap_or_default();
    let seeds: Vec<u64> = inspect.seeds.into_iter().collect();
    let mut prepared_scenarios = Vec::new();
    for scenario in scenarios::all().into_iter().filter(|scenario| scenario.name.contains(&name_part)) {
        prepared_scenarios.push(PreparedScenario::new(scenario));
    }
    let oracle_file = OracleFile::new();
    oracle_file
        .complete(&prepared_scenarios.iter().flat_map(PreparedScenario::curves).collect::<Vec<_>>())?;
    for prepared in &prepared_scenarios {
        for curve in prepared.curves().filter(|_| inspect.curve) {
            println!("{}: {:?}", curve.key, curve.truth());
            for (cap, seen) in curve.points() {
                println!("  {cap:>4} {:>8.3} {:>7.4}", seen.goodput, seen.failed);
            }
        }
    }
    if inspect.curve {
        return Ok(String::new());
    }
    let steps = inspect.steps || seeds.len() == 1;
    for prepared in &prepared_scenarios {
        let mut verdicts = Vec::new();
        if steps {
            for seed in &seeds {
                println!("{}, seed {seed}", prepared.scenario.name);
                verdicts.push(
                    prepared
                        .ours(&SearchSettings::default(), *seed, |step| println!("  {}", step_text(step)))?,
                );
            }
        } else {
            let each = |seed| prepared.ours(&SearchSettings::default(), seed, |_| ());
            verdicts = virtual_time::each(seeds.iter().copied(), each)?;
        }
        for verdict in &verdicts {
            println!("  {}", line(verdict));
            if steps {
                println!("  {} {:?}", verdict.because, verdict.notes);
            }
        }
        println!("{}: {}", prepared.scenario.name, Figures::of(&verdicts).line());
    }
    oracle_file.merge(&prepared_scenarios.iter().flat_map(PreparedScenario::curves).collect::<Vec<_>>())?;
    Ok(String::new())
}

fn step_text(step: &StepResult) -> String {
    let StepResult { step: number, cap, purpose, began, ended, calls, attempts, .. } = step;
    let rate = step
        .throughput
        .map_or_else(String::new, |x| format!("{:.3} ({:.3}-{:.3})/s", x.value, x.low, x.high));
    format!(
        "{number:>3} cap {cap:>4} {purpose:?} {began:.1}-{ended:.1} s, {calls} calls {attempts} attempts {:?} {:?} {rate} in flight {:.1} gap {:.3} forbidden {:.3}",
        step.failures, step.verdict, step.in_flight, step.gap_fraction, step.forbidden
    )
}

fn line(v: &Verdict) -> String {
    let mark = |good: bool, name: &str| if good { String::new() } else { format!(" {name}") };
    format!(
        "seed {:>4}: cap {:?} in {:?}, truth {}, {:?}, ratio {:.3}, {} calls, {} attempts, {:.0} s{}{}{}{}",
        v.seed,
        v.cap,
        v.interval,
        v.true_cap,
        v.binding,
        v.ratio,
        v.calls,
        v.attempts,
        v.seconds,
        mark(!v.infeasible, "INFEASIBLE"),
        mark(v.class_right, "CLASS"),
        mark(v.covers, "MISSED"),
        mark(v.ratio >= 0.97, "LOW")
    )
}
