//! Reads the options of a sweep. Given options take precedence over those of a configured target,
//! and both over the defaults. If a sweep is resumed, given options take precedence over those of
//! its journal, which contain the options of the target.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Map, Value};
use tidegate::config::{TargetConfig, TransportConfig};
use tidegate::config_file;
use tidegate_sweep::{Sweep, SweepError, SweepOptions};

use super::raised_sweep;
use crate::errors::to_py_err;

/// Creates a sweep from the arguments of `Sweep` in Python. See [`super::Sweep`]. Also returns the
/// `key_env` of the configured target, if there is one, and the settings of its connections.
pub(super) fn sweep(
    py: Python<'_>,
    given: &str,
    target: Option<(PathBuf, String)>,
    resume: Option<PathBuf>,
) -> PyResult<(Sweep, Option<Arc<str>>, TransportConfig)> {
    let given: Map<String, Value> =
        serde_json::from_str(given).map_err(|e| PyValueError::new_err(format!("not JSON: {e}")))?;
    let (target, transport) = target.map(|(file, name)| configured(py, &file, &name)).transpose()?.unzip();
    let sweep = match resume {
        Some(directory) => {
            let mut invalid = None;
            let sweep = Sweep::resume(&directory, |options| invalid = apply(options, given, None).err());
            invalid.map_or(sweep, Err)
        }
        None => {
            let mut options = SweepOptions { engine_metrics: true, ..SweepOptions::default() };
            apply(&mut options, given, target.as_ref()).and_then(|()| Sweep::new(options))
        }
    };
    let key_env = target.as_ref().and_then(|target| target.key_env.clone());
    let sweep = match target {
        Some(target) => sweep.and_then(|sweep| sweep.target(target)),
        None => sweep,
    };
    Ok((sweep.map_err(|e| raised_sweep(py, e))?, key_env, transport.unwrap_or_default()))
}

/// Returns the target with this name from a configuration file, and the settings of its
/// connections.
///
/// # Errors
///
/// `tidegate.ConfigError` if the file is invalid or has no target with this name.
fn configured(py: Python<'_>, file: &PathBuf, name: &str) -> PyResult<(TargetConfig, TransportConfig)> {
    let config = py.detach(|| config_file::read(file)).map_err(|e| to_py_err(py, &e))?;
    let found = config.targets.iter().find(|target| &*target.name == name);
    found.map(|target| (config.detached(target), config.transport.clone())).ok_or_else(|| {
        let names: Vec<&str> = config.targets.iter().map(|target| &*target.name).collect();
        let text = format!("{} has no target {name}; it has {}", file.display(), names.join(", "));
        raised_sweep(py, SweepError::Options(text))
    })
}

/// Changes `options`: applies those of `target`, unless that is `None`, then the given ones. If no
/// start is given, moves the start of the search into the bounds.
///
/// # Errors
///
/// If a given option has a wrong type or value.
fn apply(
    options: &mut SweepOptions,
    given: Map<String, Value>,
    target: Option<&TargetConfig>,
) -> Result<(), SweepError> {
    let invalid = |error: serde_json::Error| SweepError::Options(error.to_string());
    if let Some(target) = target {
        options.take_from(target);
    }
    let starts = given.get("search").is_some_and(|search| search.get("start").is_some());
    let mut whole = serde_json::to_value(&*options).map_err(invalid)?;
    merge(&mut whole, Value::Object(given));
    *options = serde_json::from_value(whole).map_err(invalid)?;
    // Keeps the default start inside the bounds that the user gave.
    if !starts {
        let search = &mut options.search;
        search.start = search.start.clamp(search.min_cap, search.max_cap.max(search.min_cap));
    }
    Ok(())
}

/// Merges `given` into `base`, key by key. If a given request mix has a source (`from`) other than
/// that in `base`, it replaces the whole mix.
fn merge(base: &mut Value, given: Value) {
    match (base, given) {
        (Value::Object(base), Value::Object(given))
            if given.get("from").is_none_or(|from| base.get("from") == Some(from)) =>
        {
            for (key, value) in given {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, given) => *base = given,
    }
}
