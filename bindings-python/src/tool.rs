//! A tool's slot that Python holds or waits for.

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Error, ToolPermit};
use tidegate_bindings::{GrantedTool, RuntimeBound, ToolRequest};

use crate::bridge::{Outcome, Port, block_on};
use crate::context::Context;
use crate::errors;

/// How Python says that the model slot is yielded.
pub(crate) const YIELD_OPTION: &str = "gate.tool(..., yield_slot=True)";

/// A request for a slot of a tool. Dropping it releases the slot, or leaves the queue.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Asked(pub(crate) ToolRequest);

impl Asked {
    /// Returns the wait for the slot, or `RuntimeError` if it was started before.
    fn wait(&self) -> PyResult<impl Future<Output = Result<GrantedTool, Error>> + Send + use<>> {
        self.0.granted().ok_or_else(|| PyRuntimeError::new_err("this tool was waited for already"))
    }
}

#[pymethods]
impl Asked {
    /// The warning for a caller that waits here while it holds a model slot.
    #[getter]
    fn advice(&self) -> Option<&str> {
        self.0.advice()
    }

    /// Returns the asyncio future of the permit or the error, and the number that cancels it.
    fn granted(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        Port::submit(port, self.wait()?)
    }

    /// Waits for the permit, and returns it or the error.
    fn granted_blocking(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Box::new(block_on(py, self.wait()?)?).into_python(py)
    }

    /// Withdraws the request. Idempotent.
    fn close(&self) {
        self.0.close();
    }
}

/// A slot of a tool.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Permit {
    permit: Mutex<Option<RuntimeBound<ToolPermit>>>,
    /// The context of the calls that the holder makes.
    #[pyo3(get)]
    context: Py<Context>,
}

#[pymethods]
impl Permit {
    /// Releases the slot. Idempotent.
    fn close(&self) {
        let permit = self.permit.lock().take();
        drop(permit);
    }
}

impl Outcome for Result<GrantedTool, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(GrantedTool { permit, context }) => {
                let context = Py::new(py, Context(context))?;
                Ok(Py::new(py, Permit { permit: Mutex::new(Some(permit)), context })?.into_any())
            }
            Err(error) => errors::instance(py, &error),
        }
    }
}
