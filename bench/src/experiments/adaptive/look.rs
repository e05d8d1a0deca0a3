//! A few seeds of some scenarios, as a table and second by second: for whoever chooses constants.

use std::fmt::Write as _;

use clap::Args;

use super::oracle::Oracle;
use super::play::NOTED;
use super::roster::{ORACLE, entries};
use super::scenarios;
use super::stage::{Stage, TERMS};
use super::standing::standings;
use crate::Fallible;
use crate::virtual_time::beginning;

/// What to look at, instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// Scenarios whose names contain this; all: "".
    #[arg(long)]
    scenario: Option<String>,
    /// Seeds, from and to.
    #[arg(long, default_value = "1-4")]
    seeds: String,
    /// Contenders whose names contain this, and the oracle.
    #[arg(long, default_value = "")]
    who: String,
    /// Every five seconds of the first seed.
    #[arg(long)]
    trace: bool,
    /// Held-out scenarios too.
    #[arg(long)]
    held_out: bool,
}

impl Look {
    pub(crate) fn wanted(&self) -> bool {
        self.scenario.is_some()
    }

    fn seeds(&self) -> Fallible<Vec<u64>> {
        let (from, to) = self.seeds.split_once('-').unwrap_or((&self.seeds, &self.seeds));
        Ok((from.parse()?..=to.parse()?).collect())
    }
}

/// Prints it.
pub(crate) fn look(look: &Look) -> Fallible<String> {
    let seeds = look.seeds()?;
    let wanted = look.scenario.clone().unwrap_or_default();
    for scenario in scenarios::all() {
        if !scenario.name.contains(&wanted) || (scenario.held_out && !look.held_out) {
            continue;
        }
        let stage = Stage::new(scenario)?;
        let oracle = Oracle::find(&stage)?;
        print!("{}", table(&stage, &oracle, &seeds, &look.who)?);
        if look.trace {
            print!("{}", trace(&stage, &oracle, &seeds, &look.who));
        }
    }
    Ok(String::new())
}

fn table(stage: &Stage, oracle: &Oracle, seeds: &[u64], who: &str) -> Fallible<String> {
    let mut text = format!(
        "\n{}: {:.2} calls/s at the best; oracle {:?}, bands {:?}\n  {:<34} {:>7} {:>7}  {:<22} {:>6} {:>7} {:>7} {:>6} {:>5}  settled s\n",
        stage.scenario.name,
        stage.capacity,
        oracle.limits,
        oracle.bands,
        "",
        "goodput",
        "worst",
        "by phase",
        "met %",
        "p99 s",
        "worst",
        "429s",
        "floor",
    );
    let mut entries = entries(stage, oracle);
    entries.retain(|entry| entry.name == ORACLE || entry.name.contains(who));
    let standings = standings(stage, oracle, &entries, seeds)?;
    let Some(best) = standings.iter().find(|standing| standing.name == ORACLE) else { return Ok(text) };
    for standing in &standings {
        let phases: Vec<_> = (0..stage.scenario.phases.len())
            .map(|phase| format!("{:.3}", standing.phase_goodput(best, phase)))
            .collect();
        let p99 = standing.ttft_p99_s();
        writeln!(
            text,
            "  {:<34} {:>7.3} {:>7.3}  {:<22} {:>6.2} {:>7.2} {:>7.2} {:>6.2} {:>5.0}  {:?}",
            standing.name,
            standing.goodput(best),
            standing.worst_goodput(best),
            phases.join(" "),
            standing.met() * 100.0,
            p99.median,
            p99.most,
            standing.turned_away(),
            standing.collapsed_s(),
            standing.settled_s(),
        )?;
    }
    Ok(text)
}

fn trace(stage: &Stage, oracle: &Oracle, seeds: &[u64], who: &str) -> String {
    let Some(seed) = seeds.first() else { return String::new() };
    let course = stage.course(*seed);
    let mut text = String::new();
    for entry in entries(stage, oracle).iter().filter(|entry| entry.name.contains(who)) {
        let mut contender = (entry.make)(&TERMS, beginning());
        let played = stage.play(&course, contender.as_mut(), true);
        let _ = writeln!(text, "\n  {}: limit, in flight, awaiting, waiting", entry.name);
        for (place, (second, note)) in
            played.seconds.iter().skip(NOTED - 1).step_by(NOTED).zip(&played.notes).enumerate()
        {
            let _ = writeln!(
                text,
                "  {:>5} s {:>5} {:>5} {:>5} {:>5}  {note}",
                (place + 1) * NOTED,
                second.limit,
                second.in_flight,
                second.awaiting,
                second.waiting,
            );
        }
    }
    text
}
