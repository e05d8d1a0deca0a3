//! The fake target, as Python's tests hold it.

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tidegate_testing::{Script, world};

use crate::bridge::runtime;

/// A target that answers from a script; in place of the network while it is installed.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct FakeTarget {
    target: tidegate_testing::FakeTarget,
    world: Mutex<Option<u64>>,
}

#[pymethods]
impl FakeTarget {
    /// The script is JSON.
    #[new]
    fn new(script: &str) -> PyResult<Self> {
        Ok(Self { target: tidegate_testing::FakeTarget::new(parsed(script)?), world: Mutex::default() })
    }

    /// Another script from now on, as JSON.
    fn follow(&self, script: &str) -> PyResult<()> {
        self.target.follow(parsed(script)?);
        Ok(())
    }

    /// Every gate of the process, existing or new, sends to it from now on.
    fn install(&self) -> PyResult<()> {
        let mut world = self.world.lock();
        if world.is_some() {
            return Err(PyRuntimeError::new_err("this fake target is installed already"));
        }
        self.target.start(runtime::now());
        *world = Some(world::enter(Some(self.target.transport())));
        Ok(())
    }

    /// The network is back. Idempotent.
    fn uninstall(&self) {
        if let Some(number) = self.world.lock().take() {
            world::leave(number);
        }
    }

    /// Times of attempts count from now.
    fn start(&self) {
        self.target.start(runtime::now());
    }

    /// Every attempt so far, as JSON.
    fn attempts(&self, py: Python<'_>) -> PyResult<String> {
        settled(py);
        serde_json::to_string(&self.target.attempts()).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// How many attempts are in flight.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        settled(py);
        self.target.in_flight()
    }

    /// The most that were at once.
    #[getter]
    fn max_in_flight(&self) -> usize {
        self.target.max_in_flight()
    }

    /// Requests that nothing in the script takes.
    #[getter]
    fn unmatched(&self) -> Vec<String> {
        self.target.unmatched()
    }
}

/// On virtual time, what was given up a moment ago has ended.
fn settled(py: Python<'_>) {
    if let Some(time) = runtime::virtual_time() {
        py.detach(|| time.turn());
    }
}

fn parsed(script: &str) -> PyResult<Script> {
    serde_json::from_str(script).map_err(|e| PyValueError::new_err(format!("script: {e}")))
}
