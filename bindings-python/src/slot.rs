//! A target's slot that Python holds.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::Error;
use tidegate_bindings::{SlotHandle, seconds, status_code};

use crate::bridge::Outcome;
use crate::errors::{self, invalid};

/// A slot of a target, for a call that uses no HTTP client.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Slot(SlotHandle);

impl Slot {
    /// Runs `f` on the slot, or returns `RuntimeError` if it was released.
    fn with<T>(&self, f: impl FnOnce(&mut tidegate::Slot) -> T) -> PyResult<T> {
        self.0.with(f).ok_or_else(|| {
            PyRuntimeError::new_err(
                "this slot was released: report how the call ended while the slot is held",
            )
        })
    }
}

#[pymethods]
impl Slot {
    /// The base URL of the replica of the slot if the target is a pool, otherwise None.
    #[getter]
    fn replica(&self) -> PyResult<Option<String>> {
        self.with(|slot| slot.replica().map(str::to_owned))
    }

    /// Reports that the call succeeded, as leaving the block without an exception does. The first
    /// report counts.
    fn succeeded(&self) -> PyResult<()> {
        self.with(tidegate::Slot::succeeded)
    }

    /// Reports that the upstream failed the call. Returns whether the same call may succeed later.
    /// The first report counts.
    ///
    /// `status` is the HTTP status, or None if the connection failed. gRPC's RESOURCE_EXHAUSTED is
    /// 429, UNAVAILABLE 503, DEADLINE_EXCEEDED 504, and INTERNAL 500. `retry_after` is in seconds:
    /// until then the target admits no call.
    #[pyo3(signature = (status=None, retry_after=None))]
    fn failed(&self, status: Option<u16>, retry_after: Option<f64>) -> PyResult<bool> {
        let status = status.map(|status| status_code(status.into())).transpose().map_err(invalid)?;
        let retry_after = retry_after.map(|after| seconds("retry_after", after));
        let retry_after = retry_after.transpose().map_err(invalid)?;
        self.with(|slot| slot.failed(status, retry_after))
    }

    /// Releases the slot. With `well`, the call succeeded unless it was reported as failed.
    /// Idempotent.
    #[pyo3(signature = (well=false))]
    fn close(&self, well: bool) {
        self.0.close(well);
    }
}

impl Outcome for Result<SlotHandle, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(slot) => Ok(Py::new(py, Slot(slot))?.into_any()),
            Err(error) => errors::instance(py, &error),
        }
    }
}
