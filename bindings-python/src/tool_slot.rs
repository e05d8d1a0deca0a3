//! A slot of a tool (the permission for one use of the tool) that Python owns or waits for.

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Error, ToolPermit};
use tidegate_bindings::{GrantedTool, RuntimeBound, ToolRequestHandle};

use crate::bridge::{Outcome, Port, block_on};
use crate::context::Context;
use crate::errors;

/// The Python spelling of the option that releases the caller's model slots while the caller waits
/// for a tool or uses it.
pub(crate) const YIELD_OPTION: &str = "gate.tool(..., yield_slot=True)";

/// A request for a slot of a tool. Until a wait has started, dropping it removes the request from
/// the queue, or releases the slot if it was granted.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct ToolRequest(pub(crate) ToolRequestHandle);

impl ToolRequest {
    /// Returns the future that waits for the slot.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the wait was started before.
    fn start(&self) -> PyResult<impl Future<Output = Result<GrantedTool, Error>> + Send + use<>> {
        self.0.wait().ok_or_else(|| PyRuntimeError::new_err("this tool was waited for already"))
    }
}

#[pymethods]
impl ToolRequest {
    /// A warning if the caller has to wait for the tool and keeps a model slot while it waits. None
    /// if the caller need not wait or keeps no model slot.
    #[getter]
    fn advice(&self) -> Option<&str> {
        self.0.advice()
    }

    /// Starts to wait for the slot. Returns the asyncio future of the permit or the error, and the
    /// number that cancels the wait.
    fn wait(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        Port::submit(port, self.start()?)
    }

    /// Blocks until the slot is granted. Returns the permit, or the error as an exception object.
    fn wait_blocking(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Box::new(block_on(py, self.start()?)?).into_python(py)
    }

    /// Removes the request from the queue, or releases the slot if it was granted. Has no effect
    /// after a wait has started. Idempotent.
    fn close(&self) {
        self.0.close();
    }
}

/// A slot of a tool that was granted. If it is dropped, the slot is released.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Permit {
    permit: Mutex<Option<RuntimeBound<ToolPermit>>>,
    /// The context for calls while the slot is held. Its list of held tools includes this tool.
    #[pyo3(get)]
    context: Py<Context>,
}

#[pymethods]
impl Permit {
    /// Releases the slot of the tool. Idempotent.
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
            Err(error) => errors::to_exception(py, &error),
        }
    }
}
