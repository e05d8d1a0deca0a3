//! A tool's slot, as Python holds it, and the asking for one.

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::{Error, Gate, ToolPermit, tool};
use tokio::runtime::Handle;

use crate::bridge::{Held, Outcome, Port, block_on};
use crate::context::Context;
use crate::errors;

/// How Python says it.
const OPTION: &str = "gate.tool(..., yield_slot=True)";

/// A slot, and the context of whatever its holder asks for next. Dropping it gives the slot back.
struct Acquired {
    permit: Held<ToolPermit>,
    context: tidegate::Context,
}

/// A tool that was asked for. Dropping it gives the slot back, or leaves the queue.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Asked {
    asked: Mutex<Option<Held<Result<tool::Asked, Error>>>>,
    context: tidegate::Context,
    /// What is to be said to whoever waits here while holding a model slot.
    #[pyo3(get)]
    advice: Option<String>,
}

impl Asked {
    /// Takes a free slot, or prepares the wait. Inside the runtime.
    pub(crate) fn of(gate: &Gate, tool: &str, context: tidegate::Context, yield_slot: bool) -> Self {
        let asked = gate.ask_tool(tool, &context, yield_slot);
        let held = asked.as_ref().ok().and_then(tool::Asked::while_holding);
        let advice = held.map(|held| held.advice(OPTION));
        Self { asked: Mutex::new(Some(Held::new(asked, Handle::current()))), context, advice }
    }

    /// Waits for the slot. Dropping the future leaves the queue.
    fn wait(&self) -> PyResult<impl Future<Output = Result<Acquired, Error>> + Send + use<>> {
        let asked = self.asked.lock().take();
        let asked = asked.ok_or_else(|| PyRuntimeError::new_err("this tool was waited for already"))?;
        let asked = asked.into_inner().unwrap_or_else(|| Err(errors::forked()));
        let mut context = self.context.clone();
        Ok(async move {
            let permit = asked?.granted().await?;
            context.holds = Some(permit.chain());
            Ok(Acquired { permit: Held::new(permit, Handle::current()), context })
        })
    }
}

#[pymethods]
impl Asked {
    /// The asyncio future of the permit (or error), and the number to cancel it by.
    fn granted(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        Port::submit(port, self.wait()?)
    }

    /// The permit, or error, waited for.
    fn granted_blocking(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Box::new(block_on(py, self.wait()?)?).into_python(py)
    }

    /// Does not want it any more. Idempotent.
    fn close(&self) {
        let asked = self.asked.lock().take();
        drop(asked);
    }
}

/// A slot of a tool.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Permit {
    permit: Mutex<Option<Held<ToolPermit>>>,
    #[pyo3(get)]
    context: Py<Context>,
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
