//! Records the figures of the experiments in virtual time, and compares later runs with the record.
//!
//! Figures are a pure function of the seeds. A change that is not meant to change behaviour leaves
//! all of them equal. Names of figures may change: `bench/frozen/renamed.toml` maps recorded names
//! to the current names. Values are never mapped.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::experiments as run;
use crate::report::Report;
use crate::{Fallible, output_files};

/// Arguments of the command `freeze`.
#[derive(Args, Debug)]
pub(crate) struct Freeze {
    /// Names of the experiments to run. Without names, all run.
    names: Vec<String>,
    /// Compare with the recorded figures instead of recording them.
    #[arg(long)]
    check: bool,
}

/// The name of an experiment, and the function that measures it on the frozen seeds.
type Frozen = (&'static str, fn() -> Fallible<Report>);

const EXPERIMENTS: [Frozen; 18] = [
    ("noisy-neighbour", || run::noisy_neighbour::measure(run::noisy_neighbour::SEEDS.take(5))),
    ("burst-default", || run::tenant_bursts::measure_default(run::tenant_bursts::SEEDS.take(2), false)),
    ("burst-mixed", || run::tenant_bursts::measure_mixed(run::tenant_bursts::SEEDS.take(2), false)),
    ("outage", || run::outage::measure(run::outage::SEEDS.take(2))),
    ("cooldown", || run::cooldown::measure(run::cooldown::SEEDS)),
    ("cancel", run::cancel::measure_virtual),
    ("fairness", || run::fairness::measure(run::fairness::SEEDS)),
    ("work-conserving", || run::work_conserving::measure(run::work_conserving::SCENARIOS)),
    ("starvation", || run::starvation::measure(run::starvation::SEEDS)),
    ("tokens", || run::tokens::measure(run::tokens::SEEDS.take(1))),
    ("kv", || run::kv::measure(run::kv::SEEDS.take(1))),
    ("burst", || run::burst::measure(run::burst::SEEDS.take(1))),
    ("aimd-history", run::aimd_history::measure),
    ("adaptive", || run::adaptive::measure(run::adaptive::SEEDS.take(3), false)),
    ("adaptive-gate", || {
        run::adaptive_gate::measure(
            run::adaptive_gate::BURST_SEEDS.take(2),
            run::adaptive_gate::REPLAY_SEEDS.take(1),
        )
    }),
    ("pool", || run::pool::measure(run::pool::SEEDS.take(2), false)),
    ("herd", || run::herd::measure(run::herd::SEEDS.take(200))),
    ("sweep", || run::sweep::answers(run::sweep::SEEDS.take(5))),
];

/// Measures the experiments that `freeze.names` selects, and records their figures in
/// `bench/frozen/`. With `freeze.check`, compares the figures with the recorded ones instead.
/// Returns a one-line summary.
///
/// # Errors
///
/// Returns an error if an experiment is unknown or cannot be measured, or if figures differ.
pub(crate) fn freeze(freeze: &Freeze) -> Fallible<String> {
    if let Some(name) = freeze.names.iter().find(|name| !EXPERIMENTS.iter().any(|(known, _)| name == known)) {
        let known: Vec<_> = EXPERIMENTS.iter().map(|(known, _)| *known).collect();
        return Err(format!("{name} is not a frozen experiment; these are: {}", known.join(", ")).into());
    }
    let folder = output_files::folder("frozen");
    let renamed = Renamed::read(&std::fs::read_to_string(folder.join("renamed.toml"))?)?;
    let (mut figures, mut differ) = (0, 0);
    for (name, measure) in EXPERIMENTS {
        if !freeze.names.is_empty() && !freeze.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let found = flat(&measure()?.json())?;
        let file = format!("{name}.json");
        if freeze.check {
            let recorded = serde_json::from_str(&std::fs::read_to_string(folder.join(&file))?)?;
            differ += differences(name, &renamed.apply(name, recorded), &found);
        } else {
            output_files::write(&folder, &file, &text(&found))?;
        }
        eprintln!("{name}: {} figures", found.len());
        figures += found.len();
    }
    match differ {
        0 => Ok(format!("{figures} figures {}", if freeze.check { "equal" } else { "recorded" })),
        _ => Err(format!("{differ} of {figures} figures differ").into()),
    }
}

/// Returns the figures, the figures of peers, the bars (thresholds with their results) and the
/// seeds of a report (the JSON object of [`Report`]) in one map. Each has a unique name.
fn flat(report: &Value) -> Fallible<Map<String, Value>> {
    let mut all = Map::new();
    let mut add = |name: String, value: &Value| match all.insert(name.clone(), value.clone()) {
        None => Ok(()),
        Some(_) => Err(format!("two figures are named {name}")),
    };
    add("seeds".to_owned(), &report["seeds"])?;
    for (key, value) in report["figures"].as_object().into_iter().flatten() {
        add(format!("figure: {key}"), value)?;
    }
    for (peer, figures) in report["peers"].as_object().into_iter().flatten() {
        for (key, value) in figures.as_object().into_iter().flatten() {
            add(format!("{peer}: {key}"), value)?;
        }
    }
    for bar in report["bars"].as_array().into_iter().flatten() {
        let what = bar["what"].as_str().unwrap_or_default();
        add(format!("bar: {what}"), &json!([bar["value"], bar["op"], bar["bar"], bar["ok"]]))?;
    }
    Ok(all)
}

/// Returns the figures as a JSON object with one figure per line.
fn text(figures: &Map<String, Value>) -> String {
    let lines: Vec<String> =
        figures.iter().map(|(key, value)| format!("  {}: {value}", json!(key))).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}

/// Prints each figure whose value differs between `recorded` and `found`, or that only one of them
/// has. Returns the number of such figures.
fn differences(experiment: &str, recorded: &Map<String, Value>, found: &Map<String, Value>) -> usize {
    let mut count = 0;
    let mut tell = |key: &str, recorded: Option<&Value>, found: Option<&Value>| {
        if recorded != found {
            let show = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            eprintln!("{experiment}: {key}: {} recorded, {} found", show(recorded), show(found));
            count += 1;
        }
    };
    for (key, value) in recorded {
        tell(key, Some(value), found.get(key));
    }
    for (key, value) in found.iter().filter(|(key, _)| !recorded.contains_key(*key)) {
        tell(key, None, Some(value));
    }
    count
}

/// The contents of `bench/frozen/renamed.toml`, a table of recorded phrases and their replacements.
/// Entries at the top level apply to all experiments. Entries in the table of an experiment apply
/// to that experiment only.
struct Renamed(toml::Table);

impl Renamed {
    fn read(text: &str) -> Fallible<Self> {
        Ok(Self(text.parse()?))
    }

    /// Returns the recorded figures of an experiment after replacing the renamed phrases in the
    /// names of figures and in text values. Numbers stay the same.
    fn apply(&self, experiment: &str, recorded: Map<String, Value>) -> Map<String, Value> {
        let of_one = self.0.get(experiment).and_then(toml::Value::as_table);
        let phrases: Vec<(&str, &str)> = self
            .0
            .iter()
            .chain(of_one.into_iter().flatten())
            .filter_map(|(old, new)| Some((old.as_str(), new.as_str()?)))
            .collect();
        recorded
            .into_iter()
            .map(|(key, value)| (renamed(&key, &phrases), with_renamed_texts(value, &phrases)))
            .collect()
    }
}

fn renamed(text: &str, phrases: &[(&str, &str)]) -> String {
    phrases.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
}

fn with_renamed_texts(value: Value, phrases: &[(&str, &str)]) -> Value {
    match value {
        Value::String(text) => Value::String(renamed(&text, phrases)),
        Value::Array(values) => values.into_iter().map(|value| with_renamed_texts(value, phrases)).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (renamed(&key, phrases), with_renamed_texts(value, phrases)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn renaming_changes_names_and_texts_but_no_numbers() {
        let renamed = Renamed::read("'lodged' = 'assigned'\n[kv]\n'door' = 'gate'\n").unwrap();
        let recorded = map(json!({"calls lodged": 1, "by": {"the door": "lodged"}}));
        let expected = map(json!({"calls assigned": 1, "by": {"the gate": "assigned"}}));
        assert_eq!(renamed.apply("kv", recorded), expected);
        let other = renamed.apply("pool", map(json!({"the door": 1})));
        assert_eq!(other, map(json!({"the door": 1})), "a phrase of another experiment");
    }

    #[test]
    fn changed_missing_and_added_figures_are_differences() {
        let recorded = map(json!({"same": 1, "changed": 1, "missing": 1}));
        let found = map(json!({"same": 1, "changed": 2, "added": 1}));
        assert_eq!(differences("x", &recorded, &found), 3);
        assert_eq!(differences("x", &recorded, &recorded), 0);
    }
}
