//! Admission: each attempt waits until its target has a slot for it.
//!
//! [`crate::schedule`] decides which call goes next. This module drives it: one lock per target,
//! one channel per waiting call, one RAII permit per slot. None of that knows calls or targets; the
//! tower layer (`layer/`) does.
//!
//! A call waits in `call`, not in `poll_ready`: its turn depends on the request (tenant, lane,
//! deadline), which `poll_ready` has not seen. So the layer is always ready, and the wait is part
//! of the response future.

mod budget_set;
mod cancel;
mod control;
mod driver;
pub mod handoff;
pub(crate) mod layer;
mod liveness;
mod permit;
mod pump;
mod rejection;
mod release_guard;
mod task_slots;
#[cfg(test)]
mod tests;

pub use budget_set::BudgetSet;
pub(crate) use cancel::CancelSignal;
pub use driver::Admission;
pub use layer::AdmissionLayer;
pub use permit::Permit;
pub(crate) use rejection::prompt_too_large;
pub use release_guard::ReleaseGuard;
pub(crate) use task_slots::{ReadAhead, ReadAheadGuard, TaskSlot, TaskSlotGuard, TaskSlots};
