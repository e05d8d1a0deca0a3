//! The fake target, which replaces model servers in tests that are written in Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate_bindings::{FakeTargetHandle, to_json};

use crate::bridge::runtime;
use crate::errors::argument_error;

/// A target for tests that answers calls from a script. While it is installed, all gates send their
/// calls to it instead of the network.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct FakeTarget(FakeTargetHandle);

#[pymethods]
impl FakeTarget {
    /// Creates a target that is not installed yet. `script` is a JSON text with the answers that
    /// the target gives.
    #[new]
    fn new(script: &str) -> PyResult<Self> {
        FakeTargetHandle::new(script).map(Self).map_err(argument_error)
    }

    /// Replaces the script by another one in JSON. Later calls are answered from the new script.
    fn set_script(&self, script: &str) -> PyResult<()> {
        self.0.set_script(script).map_err(argument_error)
    }

    /// Installs the target: it replaces the network for each gate of the process, existing or new.
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

    /// Sets the moment from which the times of later attempts are counted to now. Before, they are
    /// counted from the installation.
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

    /// The maximum number of attempts that were in flight at the same time since the target was
    /// created.
    #[getter]
    fn max_in_flight(&self) -> usize {
        self.0.target().max_in_flight()
    }

    /// One line for each request for which the script had no answer, with the reason.
    #[getter]
    fn unmatched(&self) -> Vec<String> {
        self.0.target().unmatched()
    }
}

/// On virtual time, runs all tasks that are ready. Afterwards, the calls whose futures were dropped
/// have ended. Has no effect on real time.
fn finish_dropped_work(py: Python<'_>) {
    if let Some(time) = runtime::virtual_time() {
        py.detach(|| time.run_ready());
    }
}
