//! A tool's slot, as Python holds it.

use parking_lot::Mutex;
use pyo3::prelude::*;
use tidegate::{Error, Gate, ToolPermit};
use tokio::runtime::Handle;

use crate::bridge::{Held, Outcome};
use crate::context::Context;
use crate::errors;

/// A slot, and the context of whatever its holder asks for next. Dropping it gives the slot back.
pub(crate) struct Acquired {
    permit: Held<ToolPermit>,
    context: tidegate::Context,
}

/// A slot of a tool.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Permit {
    permit: Mutex<Option<Held<ToolPermit>>>,
    #[pyo3(get)]
    context: Py<Context>,
}

impl Permit {
    /// Waits for a slot. Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        gate: Gate,
        tool: String,
        mut context: tidegate::Context,
    ) -> Result<Acquired, Error> {
        let permit = gate.acquire_tool(&tool, &context).await?;
        context.holds = Some(permit.chain());
        Ok(Acquired { permit: Held::new(permit, Handle::current()), context })
    }
}

#[pymethods]
impl Permit {
    /// Gives the slot back. Idempotent.
    fn close(&self) {
        let permit = self.permit.lock().take();
        drop(permit);
    }
}

impl Outcome for Result<Acquired, Error> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Ok(Acquired { permit, context }) => {
                let context = Py::new(py, Context(context))?;
                Ok(Py::new(py, Permit { permit: Mutex::new(Some(permit)), context })?.into_any())
            }
            Err(error) => errors::instance(py, &error),
        }
    }
}
