//! A target's slot, as Python holds it.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tidegate::{Context, Error, Gate, duration};
use tokio::runtime::Handle;

use crate::bridge::{Held, Outcome};
use crate::errors;

/// A slot on its way to Python.
pub(crate) struct Acquired(Held<tidegate::Slot>);

/// A slot of a target, held for a call that goes around every HTTP client.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Slot(Mutex<Option<Held<tidegate::Slot>>>);

impl Slot {
    /// Waits for a slot. Dropping the future leaves the queue.
    pub(crate) async fn acquire(gate: Gate, target: String, context: Context) -> Result<Acquired, Error> {
        let slot = gate.acquire_slot(&target, &context).await?;
        Ok(Acquired(Held::new(slot, Handle::current())))
    }

    fn tell<T>(&self, say: impl FnOnce(&mut tidegate::Slot) -> T) -> PyResult<T> {
        let mut held = self.0.lock();
        let held = held.as_mut().filter(|held| held.usable()).ok_or_else(|| {
            PyRuntimeError::new_err("this slot was given back: say how the call went while it is held")
        })?;
        // A waiting call that is told now may need a timer.
        let runtime = held.runtime().clone();
        let _context = runtime.enter();
        held.get_mut()
            .map(say)
            .ok_or_else(|| PyRuntimeError::new_err("this slot belongs to the parent of this process"))
    }
}

#[pymethods]
impl Slot {
    /// The base URL of the replica that the slot is at, where its target is a pool; else None.
    #[getter]
    fn replica(&self) -> PyResult<Option<String>> {
        self.tell(|slot| slot.replica().map(str::to_owned))
    }

    /// Says that the call went well, which leaving the block without an exception says too. The first word counts.
    fn succeeded(&self) -> PyResult<()> {
        self.tell(tidegate::Slot::succeeded)
    }

    /// Says that the upstream failed the call, and returns whether the same call may succeed later. The first word counts.
    ///
    /// `status` is the HTTP status (of gRPC's codes RESOURCE_EXHAUSTED is 429, UNAVAILABLE 503, DEADLINE_EXCEEDED 504, INTERNAL 500); None
    /// where the connection failed. `retry_after` is the seconds that the upstream asked for: until then nobody is admitted.
    #[pyo3(signature = (status=None, retry_after=None))]
    fn failed(&self, status: Option<u16>, retry_after: Option<f64>) -> PyResult<bool> {
        let status = status.map(status_of).transpose()?;
        let retry_after = retry_after.map(seconds).transpose()?;
        self.tell(|slot| slot.failed(status, retry_after))
    }

    /// Gives the slot back; with `well`, the call went well unless it was said to have failed. Idempotent.
    #[pyo3(signature = (well=false))]
    fn close(&self, well: bool) {
        let slot = self.0.lock().take();
        if let Some(mut slot) = slot {
            let runtime = slot.runtime().clone();
            let _context = runtime.enter();
            if let Some(slot) = slot.get_mut().filter(|_| well) {
                slot.succeeded();
            }
        }
    }
}

fn status_of(status: u16) -> PyResult<StatusCode> {
    StatusCode::from_u16(status)
        .map_err(|_| PyValueError::new_err(format!("status: {status} is no HTTP status; give 100 to 999")))
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    duration::from_secs(seconds).ok_or_else(|| {
        PyValueError::new_err(format!(
            "retry_after: {seconds} is not valid; give a finite number of seconds, 0 or more"
        ))
    })
}

impl Outcome for Result<Acquired, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(Acquired(slot)) => Ok(Py::new(py, Slot(Mutex::new(Some(slot))))?.into_any()),
            Err(error) => errors::instance(py, &error),
        }
    }
}
