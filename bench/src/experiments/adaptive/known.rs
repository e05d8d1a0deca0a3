//! A file of oracles that were found before, for repeated looks at the same scenarios.
//!
//! A changed scenario has another key. A change of the driver or of the engines is not noticed, so
//! results never use this file.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::oracle::Oracle;
use super::scenarios::Scenario;
use super::stage::Stage;
use super::workload::Part;
use crate::Fallible;

/// Scenarios with their capacities and oracles.
#[derive(Debug, Default)]
pub(crate) struct Known(Map<String, Value>);

impl Known {
    /// Reads the file. Returns an empty value if there is no file.
    pub(crate) fn read(file: &Path) -> Fallible<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        Ok(Self(serde_json::from_str(&std::fs::read_to_string(file)?)?))
    }

    pub(crate) fn write(&self, file: &Path) -> Fallible<()> {
        Ok(std::fs::write(file, serde_json::to_string_pretty(&self.0)?)?)
    }

    /// Returns the known stage and oracle of a scenario. Otherwise finds and stores them.
    pub(crate) fn find(&mut self, scenario: Scenario, part: Part) -> Fallible<(Stage, Oracle)> {
        let key = format!("{scenario:?} {part:?}");
        if let Some((capacity, oracle)) = self.0.get(&key).and_then(known) {
            return Ok((Stage::with_capacity(scenario, part, capacity)?, oracle));
        }
        let stage = Stage::new(scenario, part)?;
        let oracle = Oracle::find(&stage)?;
        let value = json!({"capacity": stage.capacity, "limits": oracle.limits, "bands": oracle.bands});
        self.0.insert(key, value);
        Ok((stage, oracle))
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
