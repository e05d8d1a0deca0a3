//! Sweeps, which measure how many calls a server can process at the same time (its cap). Python
//! starts, observes and stops them, and requests their reports. Options, progress and results are
//! passed as JSON, with the keys of `tidegate_sweep`.

mod options;
mod report;
mod run;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use tidegate::config::TransportConfig;
use tidegate_bindings::to_json;
use tidegate_sweep::SweepError;

pub(crate) use self::report::{sweep_card, sweep_csv, sweep_figure, sweep_html};
pub(crate) use self::run::SweepRun;
use crate::bridge::runtime;
use crate::errors::{argument_error, to_py_err};

/// A sweep that has not started.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Sweep {
    sweep: Mutex<Option<tidegate_sweep::Sweep>>,
    /// The `key_env` of the configured target. `None` without a target, or if it has none.
    key_env: Option<Arc<str>>,
    /// The settings of the connections to the server.
    transport: TransportConfig,
}

#[pymethods]
impl Sweep {
    /// Creates a sweep. `given` is JSON with the options that are set explicitly. They replace the
    /// options of the configured target, of the resumed sweep, and the defaults.
    ///
    /// `target` is the path of a configuration file and the name of a target in it; with None, no
    /// options come from a configuration. `resume` is the directory of the sweep to continue, which
    /// already contains the options that the sweep took from its target; with None, the sweep is a
    /// new one.
    #[new]
    #[pyo3(signature = (given, target = None, resume = None))]
    fn new(
        py: Python<'_>,
        given: &str,
        target: Option<(PathBuf, String)>,
        resume: Option<PathBuf>,
    ) -> PyResult<Self> {
        let (sweep, key_env, transport) = options::sweep(py, given, target, resume)?;
        Ok(Self { sweep: Mutex::new(Some(sweep)), key_env, transport })
    }

    /// Returns the name of the environment variable with the API key: the `key_env` of the
    /// configured target, otherwise the usual variable of the endpoint's provider. Returns None if
    /// the target has none and the provider is not known.
    fn key_env(&self) -> PyResult<Option<String>> {
        let usual = self.with(|sweep| sweep.endpoint().usual_key_env())?;
        Ok(self.key_env.as_deref().or(usual).map(str::to_owned))
    }

    /// Returns the host of the endpoint, to which the API key is sent.
    fn host(&self) -> PyResult<String> {
        self.with(|sweep| sweep.endpoint().host().to_owned())
    }

    /// Returns the estimated cost and time of the sweep, as JSON. Sends nothing.
    fn plan(&self) -> PyResult<String> {
        self.with(|sweep| to_json(&sweep.plan()))?.map_err(argument_error)
    }

    /// Starts the sweep, which is possible only once. `began` is the time of the start, which is
    /// copied into the result. Without a `key`, no credential is sent; without a `directory`, no
    /// journal is written.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the sweep has started already; `tidegate.ConfigError` if the key contains
    /// characters that a header cannot contain, or if a proxy variable of the environment is
    /// invalid.
    #[pyo3(signature = (began, key = None, directory = None))]
    fn start(
        &self,
        py: Python<'_>,
        began: String,
        key: Option<&str>,
        directory: Option<PathBuf>,
    ) -> PyResult<SweepRun> {
        let mut sweep = self.sweep.lock().take().ok_or_else(started)?.began(began);
        if let Some(key) = key {
            sweep = sweep.key(key).map_err(|e| raised_sweep(py, e))?;
        }
        if let Some(directory) = directory {
            sweep = sweep.keep(&directory);
        }
        #[cfg(unix)]
        if runtime::virtual_time().is_none() {
            sweep = sweep.cpu(tidegate_sweep::cpu_monitor());
        }
        SweepRun::start(py, sweep, &self.transport)
    }
}

impl Sweep {
    /// Calls `f` with the sweep, and returns the result of `f`.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the sweep has started.
    fn with<T>(&self, f: impl FnOnce(&tidegate_sweep::Sweep) -> T) -> PyResult<T> {
        self.sweep.lock().as_ref().map(f).ok_or_else(started)
    }
}

/// Returns the exception for the use of a sweep that has started already.
fn started() -> PyErr {
    PyRuntimeError::new_err("this sweep has started already")
}

/// Converts an error of a sweep into a Python exception. The message of a `ConfigError`, and of a
/// sweep that was stopped, names options in Python's spelling.
fn raised_sweep(py: Python<'_>, error: SweepError) -> PyErr {
    match error {
        SweepError::Gate(error) => to_py_err(py, &error),
        SweepError::File { .. } => PyOSError::new_err(error.to_string()),
        SweepError::Preflight(_) => new_error(py, "SweepError", "sweep", &error.to_string()),
        SweepError::Stopped(text) => new_error(py, "SweepError", "sweep", &python_spelling(&text)),
        _ => new_error(py, "ConfigError", "config", &python_spelling(&error.to_string())),
    }
}

/// Creates an exception of the named class of `tidegate._errors`. `kind` is its attribute `kind`.
fn new_error(py: Python<'_>, class: &str, kind: &str, text: &str) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let class = py.import("tidegate._errors")?.getattr(class)?;
        let kind = pyo3::types::PyDict::from_sequence(&[("kind", kind)].into_pyobject(py)?)?;
        Ok(PyErr::from_value(class.call((text,), Some(&kind))?))
    };
    make().unwrap_or_else(|failed| failed)
}

/// Replaces command-line flags in a text by Python's option names: `--max-cost` becomes `max_cost`.
fn python_spelling(text: &str) -> String {
    let mut parts = text.split("--");
    let mut spelled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(part.len());
        let (flag, rest) = part.split_at(end);
        spelled.push_str(&flag.replace('-', "_"));
        spelled.push_str(rest);
    }
    spelled
}
