//! The context of calls, which `tidegate.context(...)` sets.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tidegate::TaskId;
use tidegate_bindings::{ContextOptions, remaining};

use crate::bridge::runtime;
use crate::errors::argument_error;
use crate::seconds_argument::to_seconds;

/// The immutable context of calls: tenant, lane, deadline and label. A nested context inherits what
/// it does not set.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Context(pub(crate) tidegate::Context);

#[pymethods]
impl Context {
    /// Creates a context. Arguments that are None are inherited from `outer` or, if that is None,
    /// from the default context. `deadline` is in seconds from now, above 0. If `outer` has an
    /// earlier deadline, that one applies.
    ///
    /// # Errors
    ///
    /// `ValueError` if the lane does not exist, or if the deadline is not above 0. `TypeError` if
    /// the deadline is not a number, or if another argument is not a string.
    #[new]
    #[pyo3(signature = (outer=None, tenant=None, lane=None, deadline=None, call=None))]
    fn new(
        outer: Option<&Bound<'_, Self>>,
        tenant: Option<&Bound<'_, PyAny>>,
        lane: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        call: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let tenant = tenant.map(|tenant| to_text("tenant", tenant)).transpose()?;
        let lane = lane.map(|lane| to_text("lane", lane)).transpose()?;
        let call = call.map(|call| to_text("call", call)).transpose()?;
        let deadline = deadline.map(|deadline| to_seconds("deadline", deadline)).transpose()?;
        let options = ContextOptions { tenant, lane, deadline, call };
        let context = options.within(outer.map(|outer| &outer.get().0), runtime::now);
        context.map(Self).map_err(argument_error)
    }

    /// The name of the tenant; None for the default tenant. Tenants share capacity fairly.
    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// The name of the priority class (lane).
    #[getter]
    fn lane(&self) -> &'static str {
        self.0.lane.as_str()
    }

    /// The label of the calls; None without a label.
    #[getter]
    fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// The seconds from now until the deadline: 0 if it has passed, None without a deadline.
    #[getter]
    fn remaining(&self) -> Option<f64> {
        remaining(&self.0, runtime::now)
    }
}

/// Returns the text of a string argument. `name` is the name of the argument in the error message.
///
/// # Errors
///
/// `TypeError` if the argument is not a string, and `UnicodeEncodeError` if it contains surrogates.
fn to_text<'a>(name: &str, value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    match value.cast::<PyString>() {
        Ok(text) => text.to_str(),
        Err(_) => Err(PyTypeError::new_err(format!("{name}: give a string"))),
    }
}

/// Returns the context that Python passed, or the default context if `context` is `None`. `task` is
/// the number of the asyncio task or thread that makes the calls. If it is `None`, the calls belong
/// to no task.
pub(crate) fn resolve(context: Option<&Bound<'_, Context>>, task: Option<u64>) -> tidegate::Context {
    tidegate::Context { task: task.map(TaskId::from_number), ..inherited(context) }
}

/// Returns the context that Python passed, or the default context if `context` is `None`, without a
/// task.
pub(crate) fn inherited(context: Option<&Bound<'_, Context>>) -> tidegate::Context {
    context.map(|context| context.get().0.clone()).unwrap_or_default()
}
