//! Prints a few seeds of some scenarios step by step, to find out what went wrong.

use clap::Args;
use tidegate_sweep::{SearchSettings, StepResult};

use super::figures::Figures;
use super::judge::Verdict;
use super::oracle::Kept;
use super::scenarios;
use super::stage::Stage;
use crate::{Fallible, virtual_time};

/// Prints sweeps instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// A part of the scenarios' names; "" for all.
    #[arg(long)]
    scenario: Option<String>,
    /// First and last seed.
    #[arg(long, default_value = "101-104")]
    seeds: String,
    /// Prints the yield of each cap.
    #[arg(long)]
    curve: bool,
    /// Prints each step of each seed. Always printed for a single seed.
    #[arg(long)]
    steps: bool,
}

impl Look {
    /// Returns `true` if a look was requested.
    pub(crate) fn wanted(&self) -> bool {
        self.scenario.is_some()
    }

    fn seeds(&self) -> Fallible<Vec<u64>> {
        let (from, to) = self.seeds.split_once('-').unwrap_or((&self.seeds, &self.seeds));
        Ok((from.parse()?..=to.parse()?).collect())
    }
}

/// Prints the sweeps that `look` selects.
pub(crate) fn look(look: &Look) -> Fallible<String> {
    let wanted = look.scenario.clone().unwrap_or_default();
    let seeds = look.seeds()?;
    let mut stages = Vec::new();
    for scenario in scenarios::all().into_iter().filter(|scenario| scenario.name.contains(&wanted)) {
        stages.push(Stage::new(scenario));
    }
    let kept = Kept::new();
    kept.complete(&stages.iter().flat_map(Stage::curves).collect::<Vec<_>>())?;
    for stage in &stages {
        for curve in stage.curves().filter(|_| look.curve) {
            println!("{}: {:?}", curve.key, curve.truth());
            for (cap, seen) in curve.points() {
                println!("  {cap:>4} {:>8.3} {:>7.4}", seen.goodput, seen.failed);
            }
        }
    }
    if look.curve {
        return Ok(String::new());
    }
    let steps = look.steps || seeds.len() == 1;
    for stage in &stages {
        let mut verdicts = Vec::new();
        if steps {
            for seed in &seeds {
                println!("{}, seed {seed}", stage.scenario.name);
                verdicts.push(
                    stage.ours(&SearchSettings::default(), *seed, |step| println!("  {}", told(step)))?,
                );
            }
        } else {
            let each = |seed| stage.ours(&SearchSettings::default(), seed, |_| ());
            verdicts = virtual_time::each(seeds.iter().copied(), each)?;
        }
        for verdict in &verdicts {
            println!("  {}", line(verdict));
            if steps {
                println!("  {} {:?}", verdict.because, verdict.notes);
            }
        }
        println!("{}: {}", stage.scenario.name, Figures::of(&verdicts).line());
    }
    kept.keep(&stages.iter().flat_map(Stage::curves).collect::<Vec<_>>())?;
    Ok(String::new())
}

fn told(step: &StepResult) -> String {
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
