//! The context of calls: `gate.run({ tenant, lane, deadline, call }, ...)`.

use std::sync::atomic::{AtomicU64, Ordering};

use napi::Result;
use napi_derive::napi;
use tidegate::TaskId;
use tidegate_bindings::{ContextOptions, remaining};

use crate::bridge::runtime;
use crate::failure::invalid;

/// The number of the next context. Each context is a task of its own, because JavaScript has no
/// others.
static NEXT_TASK: AtomicU64 = AtomicU64::new(0);

/// An immutable context. A nested context inherits what it does not set.
#[napi]
pub struct Context(pub(crate) tidegate::Context);

#[napi]
impl Context {
    /// Returns the context inside `outer`. `deadline` is in seconds from now; the earlier deadline
    /// applies.
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
        let mut context = options.within(outer.map(|outer| &outer.0), runtime::now).map_err(invalid)?;
        context.task = Some(TaskId::given(NEXT_TASK.fetch_add(1, Ordering::Relaxed)));
        Ok(Self(context))
    }

    /// The tenant.
    #[napi(getter)]
    pub fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// The name of the lane.
    #[napi(getter)]
    pub fn lane(&self) -> &'static str {
        self.0.lane.as_str()
    }

    /// The label of the calls.
    #[napi(getter)]
    pub fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// Seconds until the deadline, 0 if it has passed; undefined without a deadline.
    #[napi(getter)]
    pub fn remaining(&self) -> Option<f64> {
        remaining(&self.0, runtime::now)
    }
}

/// Returns the caller's context, or the default context.
pub(crate) fn resolve(context: Option<&Context>) -> tidegate::Context {
    context.map(|context| context.0.clone()).unwrap_or_default()
}
