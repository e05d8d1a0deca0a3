//! Admission: a call waits here until its target has a slot for it.
//!
//! Why it waits in `call` and not in `poll_ready`: whose turn it is depends on the request (tenant,
//! lane, deadline), and `poll_ready` has not seen it. So this layer is always ready, and the wait
//! is part of the response future.
//!
//! The decision is [`crate::schedule`]'s; here it is driven: one lock per target, one hand-over per
//! waiting call, one RAII permit.

mod budget_set;
mod cancel;
mod driver;
pub mod handoff;
pub(crate) mod layer;
mod liveness;
mod permit;
mod pump;
mod refused;
mod release_guard;
mod task_slots;
#[cfg(test)]
mod tests;

pub use budget_set::BudgetSet;
pub(crate) use cancel::CancelSignal;
pub use driver::Admission;
pub use layer::AdmissionLayer;
pub use permit::Permit;
pub(crate) use refused::over_maximum;
pub use release_guard::ReleaseGuard;
pub(crate) use task_slots::{ReadAhead, ReadAheadGuard, TaskSlot, TaskSlotGuard, TaskSlots};
