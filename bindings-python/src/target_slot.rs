//! A slot of a target (the permission for one call in flight) that Python owns.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::Error;
use tidegate_bindings::{SlotHandle, status_code};

use crate::bridge::Outcome;
use crate::errors::{self, argument_error};
use crate::seconds_argument::to_duration;

/// A slot of a target, for a call that is not made with a client of the gate.
///
/// `Gate.slot` acquires it. If the object is deleted, the slot is released.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Slot(SlotHandle);

impl Slot {
    /// Calls `f` with the slot, and returns the result of `f`.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the slot was released.
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
    /// Base URL of the replica to call if the target is a pool, otherwise None.
    #[getter]
    fn replica(&self) -> PyResult<Option<String>> {
        self.with(|slot| slot.replica().map(str::to_owned))
    }

    /// Reports that the call succeeded.
    ///
    /// Leaving the `with` block without an exception does the same. Only the first report counts.
    fn succeeded(&self) -> PyResult<()> {
        self.with(tidegate::Slot::succeeded)
    }

    /// Reports that the upstream failed the call.
    ///
    /// Only the first report counts.
    ///
    /// Args:
    ///     status: HTTP status, or None if the connection failed. gRPC's RESOURCE_EXHAUSTED is 429,
    ///         UNAVAILABLE 503, DEADLINE_EXCEEDED 504, and INTERNAL 500.
    ///     retry_after: Delay in seconds that the upstream asked for, during which the target
    ///         admits no call, or None if it asked for no delay.
    ///
    /// Returns:
    ///     Whether the same call may succeed later.
    #[pyo3(signature = (status=None, retry_after=None))]
    fn failed(&self, status: Option<u16>, retry_after: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let status = status.map(|status| status_code(status.into())).transpose().map_err(argument_error)?;
        let retry_after = retry_after.map(|after| to_duration("retry_after", after)).transpose()?;
        self.with(|slot| slot.failed(status, retry_after))
    }

    /// Releases the slot, unless it was released before.
    ///
    /// Args:
    ///     succeeded: Whether the call counts as successful if its result was not reported before.
    ///         Otherwise it counts as cancelled. Default: False.
    #[pyo3(signature = (succeeded=false))]
    fn close(&self, succeeded: bool) {
        self.0.close(succeeded);
    }
}

impl Outcome for Result<SlotHandle, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(slot) => Ok(Py::new(py, Slot(slot))?.into_any()),
            Err(error) => errors::to_exception(py, &error),
        }
    }
}
