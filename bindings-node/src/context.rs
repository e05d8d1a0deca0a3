//! The context of calls, which `gate.run({ tenant, lane, deadline, call }, ...)` sets.

use std::sync::atomic::{AtomicU64, Ordering};

use napi::Result;
use napi_derive::napi;
use tidegate::TaskId;
use tidegate_bindings::{ContextOptions, remaining};

use crate::bridge::runtime;
use crate::errors::argument_error;

/// The task number that the next context gets. The core tracks for each task which model slots it
/// holds. JavaScript has no tasks, so each context counts as one.
static NEXT_TASK: AtomicU64 = AtomicU64::new(0);

/// The immutable context of calls: tenant, lane, deadline and label. A nested context inherits what
/// it does not set.
#[napi]
pub struct Context(pub(crate) tidegate::Context);

#[napi]
impl Context {
    /// Creates a context. Arguments that are undefined are inherited from `outer` or, if that is
    /// undefined, from the default context. `deadline` is in seconds from now, above 0. If `outer`
    /// has an earlier deadline, that one applies.
    ///
    /// # Errors
    ///
    /// If the lane does not exist, or if the deadline is not above 0.
    #[napi(constructor)]
    pub fn new(
        outer: Option<&Context>,
        tenant: Option<String>,
        lane: Option<String>,
        deadline: Option<f64>,
        call: Option<String>,
    ) -> Result<Self> {
        let (tenant, lane, call) = (tenant.as_deref(), lane.as_deref(), call.as_deref());
        let options = ContextOptions { tenant, lane, deadline, call };
        let mut context =
            options.within(outer.map(|outer| &outer.0), runtime::now).map_err(argument_error)?;
        context.task = Some(TaskId::from_number(NEXT_TASK.fetch_add(1, Ordering::Relaxed)));
        Ok(Self(context))
    }

    /// The name of the tenant; null for the default tenant. Tenants share capacity fairly.
    #[napi(getter)]
    pub fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// The name of the priority class (lane).
    #[napi(getter)]
    pub fn lane(&self) -> &'static str {
        self.0.lane.as_str()
    }

    /// The label of the calls; null without a label.
    #[napi(getter)]
    pub fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// The seconds from now until the deadline: 0 if it has passed, null without a deadline.
    #[napi(getter)]
    pub fn remaining(&self) -> Option<f64> {
        remaining(&self.0, runtime::now)
    }
}

/// Returns the context that JavaScript passed, or the default context for `None`.
pub(crate) fn resolve(context: Option<&Context>) -> tidegate::Context {
    context.map(|context| context.0.clone()).unwrap_or_default()
}
