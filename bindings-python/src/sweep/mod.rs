//! Sweeps as Python starts, watches and stops them, and their reports. Options, progress and results cross as JSON, by the keys of `tidegate_sweep`.

mod asked;
mod report;
mod run;

use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use tidegate_sweep::SweepError;

pub(crate) use self::report::{sweep_card, sweep_csv, sweep_figure, sweep_html};
pub(crate) use self::run::SweepRun;
use crate::bridge::runtime;
use crate::errors::raised;

/// A sweep that has not begun.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Sweep(Mutex<Option<tidegate_sweep::Sweep>>);

#[pymethods]
impl Sweep {
    /// `given` is JSON: what differs from the defaults, from a configured target, or from what is resumed.
    #[new]
    #[pyo3(signature = (given, target = None, resume = None))]
    fn new(
        py: Python<'_>,
        given: &str,
        target: Option<(PathBuf, String)>,
        resume: Option<PathBuf>,
    ) -> PyResult<Self> {
        let sweep = asked::sweep(py, given, target, resume)?;
        Ok(Self(Mutex::new(Some(sweep))))
    }

    /// Where a well-known provider's key usually is.
    fn usual_key_env(&self) -> PyResult<Option<&'static str>> {
        self.look(|sweep| sweep.endpoint().usual_key_env())
    }

    /// Whom a key is for.
    fn host(&self) -> PyResult<String> {
        self.look(|sweep| sweep.endpoint().host().to_owned())
    }

    /// What it will take, as JSON. Sends nothing.
    fn plan(&self) -> PyResult<String> {
        self.look(|sweep| crate::gate::json(&sweep.plan()))?
    }

    /// Begins it, once. `began` is the moment, for the result.
    #[pyo3(signature = (began, key = None, directory = None))]
    fn start(
        &self,
        py: Python<'_>,
        began: String,
        key: Option<&str>,
        directory: Option<PathBuf>,
    ) -> PyResult<SweepRun> {
        let mut sweep = self.0.lock().take().ok_or_else(begun)?.began(began);
        if let Some(key) = key {
            sweep = sweep.key(key).map_err(|e| told(py, e))?;
        }
        if let Some(directory) = directory {
            sweep = sweep.keep(&directory);
        }
        #[cfg(unix)]
        if runtime::virtual_time().is_none() {
            sweep = sweep.cpu(tidegate_sweep::cpu_monitor());
        }
        SweepRun::start(py, sweep)
    }
}

impl Sweep {
    fn look<T>(&self, f: impl FnOnce(&tidegate_sweep::Sweep) -> T) -> PyResult<T> {
        self.0.lock().as_ref().map(f).ok_or_else(begun)
    }
}

fn begun() -> PyErr {
    PyRuntimeError::new_err("this sweep has begun already")
}

/// The exception that says the same, with the options' names as Python has them.
fn told(py: Python<'_>, error: SweepError) -> PyErr {
    match error {
        SweepError::Gate(error) => raised(py, &error),
        SweepError::File { .. } => PyOSError::new_err(error.to_string()),
        SweepError::Preflight(_) => made(py, "SweepError", "sweep", &error.to_string()),
        _ => made(py, "ConfigError", "config", &in_python(&error.to_string())),
    }
}

fn made(py: Python<'_>, class: &str, kind: &str, text: &str) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let class = py.import("tidegate._errors")?.getattr(class)?;
        let kind = pyo3::types::PyDict::from_sequence(&[("kind", kind)].into_pyobject(py)?)?;
        Ok(PyErr::from_value(class.call((text,), Some(&kind))?))
    };
    make().unwrap_or_else(|failed| failed)
}

/// `--max-cost` is `max_cost` here.
fn in_python(text: &str) -> String {
    let mut parts = text.split("--");
    let mut said = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(part.len());
        let (flag, rest) = part.split_at(end);
        said.push_str(&flag.replace('-', "_"));
        said.push_str(rest);
    }
    said
}
