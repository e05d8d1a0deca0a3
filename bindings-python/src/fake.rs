//! The fake target for tests in Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate_bindings::{FakeTargetHandle, to_json};

use crate::bridge::runtime;
use crate::errors::argument_error;

/// A target that answers calls from a script. While it is installed, it replaces the network.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct FakeTarget(FakeTargetHandle);

#[pymethods]
impl FakeTarget {
    /// Creates a target with a script in JSON, without installing it.
    #[new]
    fn new(script: &str) -> PyResult<Self> {
        FakeTargetHandle::new(script).map(Self).map_err(argument_error)
    }

    /// Replaces the script, which is JSON. Later calls are answered from the new one.
    fn set_script(&self, script: &str) -> PyResult<()> {
        self.0.set_script(script).map_err(argument_error)
    }

    /// Replaces the network for each gate of the process, existing or new.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the target is installed already.
    fn install(&self) -> PyResult<()> {
        if self.0.install(runtime::now()) {
            Ok(())
        } else {
            Err(PyRuntimeError::new_err("this fake target is installed already: uninstall it first"))
        }
    }

    /// Uninstalls the target, so that gates use the network again. Idempotent.
    fn uninstall(&self) {
        self.0.uninstall();
    }

    /// Sets the time from which the times of attempts are counted to now.
    fn reset_start_time(&self) {
        self.0.target().start(runtime::now());
    }

    /// Returns the attempts that the target has received so far, as a JSON list.
    fn attempts(&self, py: Python<'_>) -> PyResult<String> {
        finish_dropped_work(py);
        to_json(&self.0.target().attempts()).map_err(argument_error)
    }

    /// The number of attempts that are in flight now.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        finish_dropped_work(py);
        self.0.target().in_flight()
    }

    /// The maximum number of attempts that were in flight at the same time.
    #[getter]
    fn max_in_flight(&self) -> usize {
        self.0.target().max_in_flight()
    }

    /// One line for each request that matched no answer, with the reason.
    #[getter]
    fn unmatched(&self) -> Vec<String> {
        self.0.target().unmatched()
    }
}

/// Runs what is ready on virtual time, so that dropped futures end. Has no effect on real time.
fn finish_dropped_work(py: Python<'_>) {
    if let Some(time) = runtime::virtual_time() {
        py.detach(|| time.run_ready());
    }
}
