//! Prints selected scenarios on a few seeds, as tables or second by second. Constants were chosen
//! with this command.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::contender_list::{Entry, Role, entries};
use super::contender_results::contender_results;
use super::oracle_cache::OracleCache;
use super::prepared_scenario::PreparedScenario;
use super::run_records::{NOTED, Second};
use super::scenarios;
use super::table::table;
use super::workload::Part;
use crate::Fallible;
use crate::seeds::Seeds;
use crate::virtual_time::time_origin;

/// Options that print scenarios instead of measuring all of them.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Print the scenarios whose names contain this text, instead of measuring all of them. An
    /// empty text selects all.
    #[arg(long)]
    scenario: Option<String>,
    /// First and last seed, for example `1-3`.
    #[arg(long, default_value = "1-4")]
    seeds: Seeds,
    /// Print only the contenders whose names contain this text. The table always has the oracle.
    #[arg(long, default_value = "")]
    who: String,
    /// Print the state of each contender every fifth second of the first seed.
    #[arg(long)]
    trace: bool,
    /// Print held-out scenarios too.
    #[arg(long)]
    held_out: bool,
    /// File that caches the limits of oracles between runs. Oracles that are missing in it are
    /// searched for and added.
    #[arg(long)]
    oracles: Option<PathBuf>,
}

impl Inspect {
    /// Returns `true` if `--scenario` was given, so that scenarios are printed instead of measured.
    pub(crate) fn is_requested(&self) -> bool {
        self.scenario.is_some()
    }
}

/// Prints the selected scenarios. Returns an empty text, because everything was printed already.
pub(crate) fn inspect(inspect: &Inspect) -> Fallible<String> {
    let seeds: Vec<u64> = inspect.seeds.into_iter().collect();
    let part = seeds.first().map_or(Part::First, |seed| Part::of(*seed));
    if seeds.iter().any(|seed| Part::of(*seed) != part) {
        return Err("seeds are of those that chose constants (up to 100), or of the others".into());
    }
    let name_part = inspect.scenario.clone().unwrap_or_default();
    let mut known =
        inspect.oracles.as_deref().map_or_else(|| Ok(OracleCache::default()), OracleCache::read)?;
    for scenario in scenarios::all() {
        if !scenario.name.contains(&name_part) || (scenario.held_out && !inspect.held_out) {
            continue;
        }
        let (prepared, oracle) = known.find(scenario, part)?;
        let mut entries = entries(&prepared, &oracle);
        entries.retain(|entry| entry.role == Role::Oracle || entry.name.contains(&inspect.who));
        print!("{}", table(&prepared, &oracle, &contender_results(&prepared, &oracle, &entries, &seeds)?));
        if let Some(seed) = seeds.first().filter(|_| inspect.trace) {
            entries.retain(|entry| entry.name.contains(&inspect.who));
            print!("{}", trace(&prepared, &entries, *seed));
        }
    }
    if let Some(file) = &inspect.oracles {
        known.write(file)?;
    }
    Ok(String::new())
}

fn trace(prepared: &PreparedScenario, entries: &[Entry], seed: u64) -> String {
    let inputs = prepared.inputs(seed);
    let mut text = String::new();
    for entry in entries {
        let mut contender = (entry.make)(&inputs.terms, time_origin());
        let played = prepared.play(&inputs, contender.as_mut(), true);
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
