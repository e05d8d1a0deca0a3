//! The context of a call: tenant, lane, deadline and label.

use std::sync::Arc;

use tidegate::{Context, Lane, duration};
use tokio::time::Instant;

use crate::argument::InvalidArgument;

/// The arguments of a context block in the host language, such as `tidegate.context(...)` in
/// Python. A field that is `None` keeps the value of the outer context.
pub struct ContextOptions<'a> {
    /// The name of the tenant. Tenants share capacity fairly. `None` keeps that of the outer
    /// context.
    pub tenant: Option<&'a str>,
    /// The name of the priority class (lane). `None` keeps that of the outer context.
    pub lane: Option<&'a str>,
    /// The deadline, in seconds from now. Must be above 0. `None` keeps that of the outer context.
    pub deadline: Option<f64>,
    /// The label of the calls, for explanations and records. `None` keeps that of the outer
    /// context.
    pub call: Option<&'a str>,
}

impl ContextOptions<'_> {
    /// Returns the context that these options create inside the context `outer`. If both have a
    /// deadline, the earlier one applies. If `outer` is `None`, it is the default context. `now`
    /// returns the current time, from which the deadline is counted.
    ///
    /// # Errors
    ///
    /// If the lane does not exist, or if the deadline is not above 0.
    pub fn within(
        self,
        outer: Option<&Context>,
        now: impl FnOnce() -> Instant,
    ) -> Result<Context, InvalidArgument> {
        let mut context = outer.cloned().unwrap_or_default();
        if let Some(tenant) = self.tenant {
            context.tenant = Some(Arc::from(tenant));
        }
        if let Some(call) = self.call {
            context.call = Some(Arc::from(call));
        }
        if let Some(lane) = self.lane {
            context.lane = Lane::parse(lane).ok_or_else(|| unknown_lane(lane))?;
        }
        if let Some(seconds) = self.deadline {
            let at = deadline(seconds, now())?;
            context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
        }
        Ok(context)
    }
}

/// Returns the seconds from `now` until the deadline of a context: 0 if it has passed, `None`
/// without a deadline.
pub fn remaining(context: &Context, now: impl FnOnce() -> Instant) -> Option<f64> {
    context.deadline.map(|at| at.saturating_duration_since(now()).as_secs_f64())
}

/// Returns the instant that is `seconds` after `now`.
///
/// # Errors
///
/// If the number is infinite, not a number, or not above 0.
fn deadline(seconds: f64, now: Instant) -> Result<Instant, InvalidArgument> {
    let wait = duration::from_secs(seconds).filter(|_| seconds > 0.0);
    wait.map(|wait| duration::after(now.into_std(), wait).into()).ok_or_else(|| {
        InvalidArgument(format!(
            "deadline: {seconds} is not valid; give a number of seconds from now, above 0"
        ))
    })
}

/// Returns the error for an unknown lane. The message lists the valid names.
fn unknown_lane(lane: &str) -> InvalidArgument {
    let known: Vec<_> = Lane::ALL.iter().map(|lane| lane.as_str()).collect();
    InvalidArgument(format!("lane: {lane:?} does not exist; give one of {}", known.join(", ")))
}
