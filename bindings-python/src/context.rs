//! The context of calls: `tidegate.context(...)`.

use pyo3::prelude::*;
use tidegate::TaskId;
use tidegate_bindings::{ContextOptions, remaining};

use crate::bridge::runtime;
use crate::errors::invalid;

/// An immutable context. A nested context inherits what it does not set.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Context(pub(crate) tidegate::Context);

#[pymethods]
impl Context {
    /// Returns the context inside `outer`. `deadline` is in seconds from now; the earlier deadline
    /// applies.
    #[new]
    #[pyo3(signature = (outer=None, tenant=None, lane=None, deadline=None, call=None))]
    fn new(
        outer: Option<&Bound<'_, Self>>,
        tenant: Option<&str>,
        lane: Option<&str>,
        deadline: Option<f64>,
        call: Option<&str>,
    ) -> PyResult<Self> {
        let options = ContextOptions { tenant, lane, deadline, call };
        let context = options.within(outer.map(|outer| &outer.get().0), runtime::now);
        context.map(Self).map_err(invalid)
    }

    /// The tenant.
    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// The name of the lane.
    #[getter]
    fn lane(&self) -> &'static str {
        self.0.lane.as_str()
    }

    /// The label of the calls.
    #[getter]
    fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// Seconds until the deadline, 0 if it has passed; None without a deadline.
    #[getter]
    fn remaining(&self) -> Option<f64> {
        remaining(&self.0, runtime::now)
    }
}

/// Returns the caller's context, or the default context, in this asyncio task or thread.
pub(crate) fn resolve(context: Option<&Bound<'_, Context>>, task: Option<u64>) -> tidegate::Context {
    tidegate::Context { task: task.map(TaskId::given), ..inherited(context) }
}

/// Returns the caller's context, or the default context.
pub(crate) fn inherited(context: Option<&Bound<'_, Context>>) -> tidegate::Context {
    context.map(|context| context.get().0.clone()).unwrap_or_default()
}
