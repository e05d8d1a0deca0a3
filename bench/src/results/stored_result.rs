//! Reads and writes the stored results of the experiments, `bench/results/NAME.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Fallible;

/// Texts of pages and charts, by their paths below `bench/`.
type Pages = BTreeMap<String, String>;

/// The result of one experiment, as it is stored in `bench/results/NAME.json`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stored {
    pub(super) name: String,
    /// Short hash of the commit that was measured.
    pub(super) commit: String,
    /// Cores, operating system and architecture, or `not recorded`.
    machine: String,
    /// Seeds of the run, or only the first and last of a long range. Empty if the experiment uses
    /// no seeds.
    seeds: Vec<u64>,
    pub(super) figures: Map<String, Value>,
    /// Figures of the peers, by the name of the peer.
    pub(super) peers: BTreeMap<String, Map<String, Value>>,
    pub(super) bars: Vec<Bar>,
}

/// A bar: a threshold that a figure has to meet, with the measured value and the comparison.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Bar {
    /// Name of the figure.
    pub(super) what: String,
    pub(super) value: Value,
    /// `<=`, `>=`, `=`, `==`, `<`, `>`, or the comparison in words.
    pub(super) op: String,
    pub(super) bar: Value,
    /// Whether the value meets the threshold.
    pub(super) ok: bool,
}

impl Stored {
    /// Parses `line`, the JSON object that an experiment prints last, and adds the commit and the
    /// machine. Returns the result, and the texts of its pages by their paths below `bench/`.
    ///
    /// Nested figures are flattened: `{"a": {"b": 1}}` becomes `{"a, b": 1}`.
    pub(super) fn from_line(line: &str, commit: &str, machine: &str) -> Fallible<(Self, Pages)> {
        let mut result: Value = serde_json::from_str(line)?;
        let pages = result.as_object_mut().and_then(|result| result.remove("pages"));
        let pages = pages.map_or_else(|| Ok(Pages::new()), serde_json::from_value)?;
        result["commit"] = json!(commit);
        result["machine"] = json!(machine);
        result["figures"] = Value::Object(flat(&result["figures"]));
        for figures in result["peers"].as_object_mut().into_iter().flat_map(Map::values_mut) {
            *figures = Value::Object(flat(figures));
        }
        Ok((serde_json::from_value(result)?, pages))
    }

    /// Reads each `.json` file of a folder. Returns the results by the name of the experiment.
    pub(super) fn read_all(folder: &Path) -> Fallible<BTreeMap<String, Self>> {
        let mut results = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let result: Self = serde_json::from_str(&std::fs::read_to_string(&path)?)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                results.insert(result.name.clone(), result);
            }
        }
        Ok(results)
    }

    /// Returns the JSON text of the file, with one figure or bar per line.
    pub(super) fn to_text(&self) -> String {
        let peers: Vec<String> = self
            .peers
            .iter()
            .map(|(peer, figures)| format!("\n    {}: {}", json!(peer), object(figures, 4)))
            .collect();
        let bars: Vec<String> = self.bars.iter().map(|bar| format!("\n    {}", json!(bar))).collect();
        format!(
            "{{\n  \"name\": {},\n  \"commit\": {},\n  \"machine\": {},\n  \"seeds\": {},\n  \"figures\": {},\n  \"peers\": {{{}\n  }},\n  \"bars\": [{}\n  ]\n}}",
            json!(self.name),
            json!(self.commit),
            json!(self.machine),
            json!(self.seeds),
            object(&self.figures, 2),
            peers.join(","),
            bars.join(","),
        )
    }
}

fn object(figures: &Map<String, Value>, indent: usize) -> String {
    let space = " ".repeat(indent);
    let line = |(key, value): (&String, &Value)| format!("\n{space}  {}: {value}", json!(key));
    format!("{{{}\n{space}}}", figures.iter().map(line).collect::<Vec<_>>().join(","))
}

/// Flattens nested objects, except figures over several seeds (`{"median", "least", "most"}`).
fn flat(figures: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, value) in figures.as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) if !inner.contains_key("median") => {
                all.extend(flat(value).into_iter().map(|(name, value)| (format!("{key}, {name}"), value)));
            }
            _ => {
                all.insert(key.clone(), value.clone());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_reads_back_with_nested_figures_flattened() {
        let line = r#"{"name":"x","seeds":[1],"figures":{"a":{"b":1},"c":{"median":2,"least":1,"most":3}},"peers":{"p":{"a":{"b":4}}},"bars":[{"what":"w","value":1,"op":"<=","bar":2,"ok":true}],"pages":{"x/y.svg":"z"}}"#;
        let (stored, pages) = Stored::from_line(line, "abc1234", "2 cores").unwrap();
        assert_eq!(pages, [("x/y.svg".to_owned(), "z".to_owned())].into());
        let read: Stored = serde_json::from_str(&stored.to_text()).unwrap();
        assert_eq!(read.figures.keys().collect::<Vec<_>>(), ["a, b", "c"]);
        assert_eq!(read.peers["p"]["a, b"], 4);
        assert_eq!((read.bars.len(), read.commit.as_str()), (1, "abc1234"));
    }
}
