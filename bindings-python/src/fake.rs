//! The fake target of Python's tests.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate_bindings::{FakeTargetHandle, to_json};

use crate::bridge::runtime;
use crate::errors::invalid;

/// A target that answers from a script, in place of the network while it is installed.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct FakeTarget(FakeTargetHandle);

#[pymethods]
impl FakeTarget {
    /// Returns a target that follows a script in JSON.
    #[new]
    fn new(script: &str) -> PyResult<Self> {
        FakeTargetHandle::new(script).map(Self).map_err(invalid)
    }

    /// Replaces the script by another one in JSON, from now on.
    fn follow(&self, script: &str) -> PyResult<()> {
        self.0.follow(script).map_err(invalid)
    }

    /// Receives the calls of each gate of the process, existing or new, from now on.
    fn install(&self) -> PyResult<()> {
        if self.0.install(runtime::now()) {
            Ok(())
        } else {
            Err(PyRuntimeError::new_err("this fake target is installed already"))
        }
    }

    /// Restores the network. Idempotent.
    fn uninstall(&self) {
        self.0.uninstall();
    }

    /// Counts the times of attempts from now.
    fn start(&self) {
        self.0.target().start(runtime::now());
    }

    /// Returns all attempts so far, as JSON.
    fn attempts(&self, py: Python<'_>) -> PyResult<String> {
        settle(py);
        to_json(&self.0.target().attempts()).map_err(invalid)
    }

    /// The number of attempts in flight.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        settle(py);
        self.0.target().in_flight()
    }

    /// The largest number of attempts that were in flight at the same time.
    #[getter]
    fn max_in_flight(&self) -> usize {
        self.0.target().max_in_flight()
    }

    /// The requests that no route of the script matches.
    #[getter]
    fn unmatched(&self) -> Vec<String> {
        self.0.target().unmatched()
    }
}

/// On virtual time, lets dropped work end.
fn settle(py: Python<'_>) {
    if let Some(time) = runtime::virtual_time() {
        py.detach(|| time.turn());
    }
}
