//! Admission: each attempt waits until its target has a slot for it.
//!
//! [`crate::schedule`] decides which call is admitted next. This module drives the scheduler: it
//! has one lock per target, one channel per waiting call, and one RAII permit per slot. Only the
//! tower layer (`layers/admission`) depends on calls and targets.
//!
//! A call waits in `Service::call`, not in `poll_ready`, because its position in the queue depends
//! on the request (tenant, lane, deadline), which `poll_ready` does not get. So the layer is always
//! ready, and the wait is part of the response future.

mod budget_set;
mod cancel;
mod control;
mod driver;
pub(crate) mod handoff;
mod liveness_throttle;
mod outage_log;
mod permit;
mod rejection;
mod release_guard;
mod share_link;
mod shared_limit;
mod shared_pool;
mod task_slots;
#[cfg(test)]
mod tests;
mod wake_timer;

pub use budget_set::BudgetSet;
pub use driver::Admission;
pub(crate) use driver::Entered;
pub use permit::Permit;
pub(crate) use rejection::{Hints, prompt_too_large};
pub use release_guard::ReleaseGuard;
pub(crate) use share_link::{ShareEvent, ShareLink};
pub(crate) use task_slots::{ReadAhead, ReadAheadGuard, TaskSlot, TaskSlotGuard, TaskSlots};
