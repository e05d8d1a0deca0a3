//! Prints a few seeds of some scenarios as a table and second by second, to choose constants.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::course::{NOTED, Second};
use super::known::Known;
use super::roster::{Entry, Role, entries};
use super::scenarios;
use super::stage::Stage;
use super::standing::standings;
use super::table::table;
use super::workload::Part;
use crate::Fallible;
use crate::virtual_time::beginning;

/// Prints scenarios instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// A part of the scenarios' names; "" for all.
    #[arg(long)]
    scenario: Option<String>,
    /// First and last seed.
    #[arg(long, default_value = "1-4")]
    seeds: String,
    /// A part of the contenders' names. The oracle is always included.
    #[arg(long, default_value = "")]
    who: String,
    /// Prints every fifth second of the first seed.
    #[arg(long)]
    trace: bool,
    /// Includes held-out scenarios.
    #[arg(long)]
    held_out: bool,
    /// A file in which oracles are kept. Only oracles missing in it are searched.
    #[arg(long)]
    oracles: Option<PathBuf>,
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

/// Prints the scenarios that `look` selects.
pub(crate) fn look(look: &Look) -> Fallible<String> {
    let seeds = look.seeds()?;
    let part = seeds.first().map_or(Part::First, |seed| Part::of(*seed));
    if seeds.iter().any(|seed| Part::of(*seed) != part) {
        return Err("seeds are of those that chose constants (up to 100), or of the others".into());
    }
    let wanted = look.scenario.clone().unwrap_or_default();
    let mut known = look.oracles.as_deref().map_or_else(|| Ok(Known::default()), Known::read)?;
    for scenario in scenarios::all() {
        if !scenario.name.contains(&wanted) || (scenario.held_out && !look.held_out) {
            continue;
        }
        let (stage, oracle) = known.find(scenario, part)?;
        let mut entries = entries(&stage, &oracle);
        entries.retain(|entry| entry.role == Role::Oracle || entry.name.contains(&look.who));
        print!("{}", table(&stage, &oracle, &standings(&stage, &oracle, &entries, &seeds)?));
        if let Some(seed) = seeds.first().filter(|_| look.trace) {
            entries.retain(|entry| entry.name.contains(&look.who));
            print!("{}", trace(&stage, &entries, *seed));
        }
    }
    if let Some(file) = &look.oracles {
        known.write(file)?;
    }
    Ok(String::new())
}

fn trace(stage: &Stage, entries: &[Entry], seed: u64) -> String {
    let course = stage.course(seed);
    let mut text = String::new();
    for entry in entries {
        let mut contender = (entry.make)(&course.terms, beginning());
        let played = stage.play(&course, contender.as_mut(), true);
        let seconds = played.seconds.iter().skip(NOTED - 1).step_by(NOTED);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n  {}\n  {:>7} limit flying awaiting waiting", entry.name, "");
        for (place, (second, note)) in seconds.zip(&played.notes).enumerate() {
            let Second { limit, in_flight, awaiting, waiting, .. } = second;
            let at = (place + 1) * NOTED;
            let _ =
                writeln!(text, "  {at:>5} s {limit:>5} {in_flight:>6} {awaiting:>8} {waiting:>7}  {note}");
        }
    }
    text
}
