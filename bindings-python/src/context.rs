//! `tidegate.context(...)`, resolved: who calls, how urgently, until when.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate::{Lane, TaskId, duration};
use tokio::time::Instant;

use crate::bridge::runtime;

/// An immutable context; a nested one inherits what it does not set, and the earlier deadline holds.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Context(pub(crate) tidegate::Context);

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (outer=None, tenant=None, lane=None, deadline=None, call=None))]
    fn new(
        outer: Option<&Bound<'_, Self>>,
        tenant: Option<&str>,
        lane: Option<&str>,
        deadline: Option<f64>,
        call: Option<&str>,
    ) -> PyResult<Self> {
        let mut context = outer.map(|outer| outer.get().0.clone()).unwrap_or_default();
        if let Some(tenant) = tenant {
            context.tenant = Some(Arc::from(tenant));
        }
        if let Some(call) = call {
            context.call = Some(Arc::from(call));
        }
        if let Some(lane) = lane {
            context.lane = Lane::parse(lane).ok_or_else(|| unknown_lane(lane))?;
        }
        if let Some(seconds) = deadline {
            let at = moment(seconds)?;
            context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
        }
        Ok(Self(context))
    }

    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    #[getter]
    fn lane(&self) -> &'static str {
        self.0.lane.as_str()
    }

    #[getter]
    fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// Seconds until the deadline, 0 once it has passed; None without one.
    #[getter]
    fn remaining(&self) -> Option<f64> {
        self.0.deadline.map(|at| at.saturating_duration_since(runtime::now()).as_secs_f64())
    }
}

/// The caller's context, or the default one, in that asyncio task or thread.
pub(crate) fn resolve(context: Option<&Bound<'_, Context>>, task: Option<u64>) -> tidegate::Context {
    let context = context.map(|context| context.get().0.clone()).unwrap_or_default();
    tidegate::Context { task: task.map(TaskId::given), ..context }
}

fn moment(seconds: f64) -> PyResult<Instant> {
    let wait = duration::from_secs(seconds).filter(|_| seconds > 0.0);
    wait.map(|wait| duration::after(runtime::now().into_std(), wait).into()).ok_or_else(|| {
        PyValueError::new_err(format!(
            "deadline: {seconds} is no number of seconds from now; give one above 0"
        ))
    })
}

fn unknown_lane(lane: &str) -> PyErr {
    let known: Vec<_> = Lane::ALL.iter().map(|lane| lane.as_str()).collect();
    PyValueError::new_err(format!("lane: {lane:?} is none of {}", known.join(", ")))
}
