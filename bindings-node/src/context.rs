//! `gate.run({ tenant, lane, deadline, call }, ...)`, resolved: who calls, how urgently, until when; and the scope that it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use napi::{Error, Result, Status};
use napi_derive::napi;
use tidegate::{Lane, TaskId, duration};
use tokio::time::Instant;

use crate::bridge::runtime;

/// Each context that was entered is a scope of its own: JavaScript knows no other task.
static SCOPES: AtomicU64 = AtomicU64::new(0);

/// An immutable context; a nested one inherits what it does not set, and the earlier deadline holds.
#[napi]
pub struct Context(pub(crate) tidegate::Context);

#[napi]
impl Context {
    /// `deadline` is in seconds from now.
    #[napi(constructor)]
    pub fn new(
        outer: Option<&Context>,
        tenant: Option<String>,
        lane: Option<String>,
        deadline: Option<f64>,
        call: Option<String>,
    ) -> Result<Self> {
        let mut context = outer.map(|outer| outer.0.clone()).unwrap_or_default();
        if let Some(tenant) = tenant {
            context.tenant = Some(Arc::from(tenant));
        }
        if let Some(call) = call {
            context.call = Some(Arc::from(call));
        }
        context.task = Some(TaskId::given(SCOPES.fetch_add(1, Ordering::Relaxed)));
        if let Some(lane) = lane {
            context.lane = Lane::parse(&lane).ok_or_else(|| unknown_lane(&lane))?;
        }
        if let Some(seconds) = deadline {
            let at = moment(seconds)?;
            context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
        }
        Ok(Self(context))
    }

    #[napi(getter)]
    pub fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    #[napi(getter)]
    pub fn lane(&self) -> &'static str {
        self.0.lane.as_str()
    }

    #[napi(getter)]
    pub fn call(&self) -> Option<&str> {
        self.0.call.as_deref()
    }

    /// Seconds until the deadline, 0 once it has passed; undefined without one.
    #[napi(getter)]
    pub fn remaining(&self) -> Option<f64> {
        self.0.deadline.map(|at| at.saturating_duration_since(runtime::now()).as_secs_f64())
    }
}

/// The caller's context, or the default one.
pub(crate) fn resolve(context: Option<&Context>) -> tidegate::Context {
    context.map(|context| context.0.clone()).unwrap_or_default()
}

fn moment(seconds: f64) -> Result<Instant> {
    let wait = duration::from_secs(seconds).filter(|_| seconds > 0.0);
    wait.map(|wait| duration::after(runtime::now().into_std(), wait).into()).ok_or_else(|| {
        Error::new(
            Status::InvalidArg,
            format!("deadline: {seconds} is no number of seconds from now; give one above 0"),
        )
    })
}

fn unknown_lane(lane: &str) -> Error {
    let known: Vec<_> = Lane::ALL.iter().map(|lane| lane.as_str()).collect();
    Error::new(Status::InvalidArg, format!("lane: {lane:?} is none of {}", known.join(", ")))
}
