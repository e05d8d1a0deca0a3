//! A cache file for oracles (the best fixed limits of a scenario). With `adaptive --oracles FILE`,
//! the search for them is done once.
//!
//! The key of an entry is the scenario and the part of the trace. A change of the simulated client
//! or engines does not change the key, so reported figures never use this file.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::oracle::Oracle;
use super::prepared_scenario::PreparedScenario;
use super::scenarios::Scenario;
use super::workload::Part;
use crate::Fallible;

/// The capacity (calls per second) and the oracle of each scenario.
#[derive(Debug, Default)]
pub(crate) struct OracleCache(Map<String, Value>);

impl OracleCache {
    /// Reads the file. Returns an empty cache if the file does not exist.
    pub(crate) fn read(file: &Path) -> Fallible<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        Ok(Self(serde_json::from_str(&std::fs::read_to_string(file)?)?))
    }

    pub(crate) fn write(&self, file: &Path) -> Fallible<()> {
        Ok(std::fs::write(file, serde_json::to_string_pretty(&self.0)?)?)
    }

    /// Returns the prepared scenario and its oracle. If the cache does not contain them, searches
    /// for them and adds them to the cache, but not to the file.
    pub(crate) fn find(&mut self, scenario: Scenario, part: Part) -> Fallible<(PreparedScenario, Oracle)> {
        let key = format!("{scenario:?} {part:?}");
        if let Some((capacity, oracle)) = self.0.get(&key).and_then(known) {
            return Ok((PreparedScenario::with_capacity(scenario, part, capacity)?, oracle));
        }
        let prepared = PreparedScenario::new(scenario, part)?;
        let oracle = Oracle::find(&prepared)?;
        let value = json!({"capacity": prepared.capacity, "limits": oracle.limits, "bands": oracle.bands});
        self.0.insert(key, value);
        Ok((prepared, oracle))
    }
}

fn known(value: &Value) -> Option<(f64, Oracle)> {
    let numbers = |value: &Value| -> Option<Vec<usize>> {
        value.as_array()?.iter().map(|number| Some(number.as_u64()? as usize)).collect()
    };
    let bands = value
        .get("bands")?
        .as_array()?
        .iter()
        .map(|band| Some((*numbers(band)?.first()?, *numbers(band)?.last()?)));
    let oracle = Oracle { limits: numbers(value.get("limits")?)?, bands: bands.collect::<Option<_>>()? };
    Some((value.get("capacity")?.as_f64()?, oracle))
}
