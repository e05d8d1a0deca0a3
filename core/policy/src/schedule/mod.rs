//! The admission scheduler of one target or tool: decides which calls get a slot, and which are
//! refused.
//!
//! # Admission
//!
//! A call is *admissible* if all of these hold:
//!
//! - the upstream has a free slot, and fewer calls await their first token than the limit allows;
//! - the tenant is below its own cap and has enough of its own tokens;
//! - the rate budgets and the engine's memory have room for the call;
//! - no cool-down is in force.
//!
//! A call that is larger than a whole budget is admissible when that budget is full. The rest
//! becomes debt.
//!
//! # Order
//!
//! Admissible calls are dispatched in this order (`select`):
//!
//! 1. tenants and lanes that hold fewer slots than their floor;
//! 2. lanes by priority, except that a lane whose oldest call was raised by its age gets an eighth
//!    of the capacity first (`lanes`);
//! 3. inside a lane, tenants by start-time fair queueing on cost;
//! 4. inside a tenant, the oldest call.
//!
//! Other calls may overtake the head of a line that does not fit, until the head is *aged*. From
//! then on, what the head lacks is *reserved* for it.
//!
//! # Parts
//!
//! [`Scheduler`] coordinates these parts, each of which owns its state:
//!
//! - `queue::Queue`: the waiting calls, in lines by tenant and lane, and what tenants are
//!   charged.
//! - `capacity::Capacity`: slots, budgets and memory, and who holds them. Behind it,
//!   `upstream::Upstream` is a single server or a pool of replicas. The scheduler does not know
//!   which.
//! - `select::Order`: the floors, and the reservation for an aged head. `select::Selector`
//!   applies the order to the queue and the capacity.
//! - `preempt::Borrowed`: the calls in flight that may be cancelled for a floor.
//! - `predict::Paces`: the pace at which slots are released, from which waits are predicted.
//!
//! # Invariants
//!
//! After every method that takes `now`, followed by [`Scheduler::next`] until it returns `None`:
//!
//! - The scheduler is *work-conserving*: no admissible call waits, except for calls that would take
//!   what is reserved and calls behind an aged head of their line.
//! - `in flight <= slots in force`, unless the limit was lowered or calls were forced (observe
//!   mode). Lowering a limit cancels nothing: slots retire as their calls end.
//! - Each queued call leaves the queue exactly once: dispatched, refused or withdrawn.
//! - What an attempt was charged is refunded, settled or kept, exactly once.
//!
//! A decision takes O(log n) time in the number of waiting calls. The scheduler has no clock and
//! does no I/O: each method gets `now`, and [`Scheduler::next_wake`] returns when to ask again. `W`
//! is what the driver needs to answer a waiting call.

mod admission_request;
mod admit;
mod available;
mod capacity;
mod charges;
mod explain;
mod fit_set;
mod floors;
mod grant;
mod lanes;
mod lazy_order;
mod limiter;
mod pool;
mod predict;
mod preempt;
mod queue;
mod requirements;
mod rule;
mod scheduler;
mod select;
mod settings;
mod single;
mod span;
mod tenants;
#[cfg(test)]
mod tests;
mod upstream;
mod view;
mod waiters;
mod wake;

pub use admission_request::{ForcedDecision, Refusal, Settled, Ticket};
pub use capacity::Resources;
pub use grant::{Grant, GrantId};
pub use rule::{Rule, WaitExplanation};
pub use scheduler::Scheduler;
pub use settings::SchedulerSettings;
pub use upstream::LimitChange;
pub use view::{LaneView, SchedulerView, TenantView};
pub use waiters::WaiterId;

// The names that the parts of the scheduler share.
use crate::Reason;
use admit::Retry;
use available::{Available, LongestPrompt, ReplicaAvailability};
use capacity::Capacity;
use charges::TenantCharge;
use fit_set::{FitSet, earlier};
use floors::{Floors, Holder, UnderFloor, floor_slots};
use lanes::{Head, Lanes, LineKey, LinePosition, Turn};
use lazy_order::LazyOrder;
use limiter::{Limiter, Tracked};
use pool::{Assignment, Pool};
use predict::Paces;
use preempt::Borrowed;
use queue::{MAX_POSITION, Queue, QueueSpace};
use requirements::{CallClass, Candidate, Requirements, ReservedResources, from_parts, parts};
use select::{HeadReservation, Order, Pick, Selector};
use single::SingleUpstream;
use span::{Gap, Span};
use tenants::{Line, Tenant, TenantId, Tenants};
use upstream::{Admitted, Failed, Limits, MemoryUse, Upstream, UpstreamSlot};
use waiters::{Waiter, Waiters};
