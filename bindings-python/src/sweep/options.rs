//! What is asked for: what was given, over what a target says, over the defaults or over what is resumed.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Map, Value};
use tidegate::config::TargetConfig;
use tidegate::config_file;
use tidegate_sweep::{Sweep, SweepError, SweepOptions};

use super::told;
use crate::errors::raised;

pub(super) fn sweep(
    py: Python<'_>,
    given: &str,
    target: Option<(PathBuf, String)>,
    resume: Option<PathBuf>,
) -> PyResult<Sweep> {
    let given: Map<String, Value> =
        serde_json::from_str(given).map_err(|e| PyValueError::new_err(format!("not JSON: {e}")))?;
    let target = target.map(|(file, name)| configured(py, &file, &name)).transpose()?;
    let made = match resume {
        Some(directory) => {
            let mut unfit = None;
            let sweep =
                Sweep::resume(&directory, |options| unfit = go_over(options, given, target.as_ref()).err());
            unfit.map_or(sweep, Err)
        }
        None => {
            let mut options = SweepOptions { engine_metrics: true, ..SweepOptions::default() };
            go_over(&mut options, given, target.as_ref()).and_then(|()| Sweep::new(options))
        }
    };
    let made = match target {
        Some(target) => made.and_then(|sweep| sweep.target(target)),
        None => made,
    };
    made.map_err(|e| told(py, e))
}

fn configured(py: Python<'_>, file: &PathBuf, name: &str) -> PyResult<TargetConfig> {
    let config = py.detach(|| config_file::read(file)).map_err(|e| raised(py, &e))?;
    let names: Vec<String> = config.targets.iter().map(|target| target.name.to_string()).collect();
    config.targets.into_iter().find(|target| &*target.name == name).ok_or_else(|| {
        let said = format!("{} has no target {name}; it has {}", file.display(), names.join(", "));
        told(py, SweepError::Options(said))
    })
}

fn go_over(
    options: &mut SweepOptions,
    given: Map<String, Value>,
    target: Option<&TargetConfig>,
) -> Result<(), SweepError> {
    let wrong = |error: serde_json::Error| SweepError::Options(error.to_string());
    if let Some(target) = target {
        options.take_from(target);
    }
    let starts = given.get("search").is_some_and(|search| search.get("start").is_some());
    let mut whole = serde_json::to_value(&*options).map_err(wrong)?;
    merge(&mut whole, Value::Object(given));
    *options = serde_json::from_value(whole).map_err(wrong)?;
    // A highest cap below the first cap that is not the user's own word.
    if !starts {
        let search = &mut options.search;
        search.start = search.start.clamp(search.min_cap, search.max_cap.max(search.min_cap));
    }
    Ok(())
}

/// What is given goes over what is there, key by key; a mix from elsewhere takes the place of the whole.
fn merge(there: &mut Value, given: Value) {
    match (there, given) {
        (Value::Object(there), Value::Object(given))
            if given.get("from").is_none_or(|from| there.get("from") == Some(from)) =>
        {
            for (key, value) in given {
                merge(there.entry(key).or_insert(Value::Null), value);
            }
        }
        (there, given) => *there = given,
    }
}
