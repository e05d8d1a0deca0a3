//! The admission scheduler of one target or tool: decides which calls get a slot, and which are
//! refused.
//!
//! # Admission
//!
//! A call is *admissible* if all of these hold:
//!
//! - the upstream has a free slot and, if several processes share its limit, so does the lease of
//!   this one (`process_lease`);
//! - fewer calls await their first token than the limit allows;
//! - the tenant is below its own cap, has enough of its own tokens, and does not use its share of
//!   an adaptive upstream while the rest is kept for others (`tenant_shares`);
//! - the rate budgets and the engine's memory have enough left for the call;
//! - no cool-down is in force.
//!
//! A call that needs more tokens than a full rate budget holds is admissible when the budget is
//! full, and leaves the budget in debt. A call that could never be admitted is refused.
//!
//! # Order
//!
//! Admissible calls are dispatched in this order (`select`):
//!
//! 1. tenants and lanes that hold fewer slots than their floor;
//! 2. lanes by priority, except that a lane that is raised by the age of its oldest call gets an
//!    eighth of the capacity first (`lanes`);
//! 3. inside a lane, tenants by start-time fair queueing on cost;
//! 4. inside a tenant, the oldest call.
//!
//! A *line* is the waiting calls of one tenant in one lane, and its first call is its *head*. If a
//! head does not fit, other calls may overtake it until it is *aged*, that is, until it has waited
//! for [`SchedulerSettings::aging`]. From then on, the resources that the head lacks are *reserved*
//! for it. A head that is estimated to exceed a budget or the memory even when unused never ages.
//! Reservations do not bind other schedulers that share the rate budgets.
//!
//! # Parts
//!
//! [`Scheduler`] coordinates these parts, each of which owns its state:
//!
//! - `queue::Queue`: the waiting calls, in lines by tenant and lane, and what tenants are charged.
//! - `capacity::Capacity`: slots, rate budgets and memory, and the number of calls that use them.
//!   Behind it, `upstream::Upstream` is a single server or a pool of replicas. The scheduler
//!   does not know which.
//! - `select::Order`: the floors (slots reserved for tenants or lanes), and the reservation for an
//!   aged head. `select::Selector` applies the order to the queue and the capacity.
//! - `preempt::Borrowed`: the calls in flight that may be cancelled to free a slot for a floor.
//! - `tenant_shares::TenantShares`: the tenants that are held because they use their share.
//! - `predict::Paces`: the pace at which slots are released, from which waits are predicted.
//!
//! # Invariants
//!
//! After every method that takes `now`, followed by [`Scheduler::next`] until it returns `None`:
//!
//! - The scheduler is *work-conserving*: no admissible call waits, except calls that would take
//!   reserved resources, and calls behind an aged head of their line.
//! - The calls in flight are at most as many as the slots in force, unless the limit was lowered or
//!   calls were forced (observe mode). Lowering a limit cancels no call: slots are removed as their
//!   calls end.
//! - Each queued call leaves the queue exactly once: dispatched, refused or withdrawn.
//! - Each charge of an attempt is refunded, settled or kept, exactly once.
//!
//! A decision takes O(log n) time in the number of waiting calls. The scheduler has no clock and
//! does no I/O. Its *driver*, the async code that owns it, passes the current time to each method
//! and sleeps until the time that [`Scheduler::next_wake`] returns. The type parameter `W` of
//! [`Scheduler`] is the driver's handle to the caller of a waiting call.

mod admission_request;
mod admit;
mod available;
mod capacity;
mod condition_span;
mod explain;
mod fit_set;
mod floors;
mod grant;
mod lanes;
mod lazy_order;
mod limit_event_exchange;
mod limiter;
mod pool;
mod predict;
mod preempt;
mod process_lease;
mod queue;
mod requirements;
mod rule;
mod scheduler;
mod select;
mod settings;
mod single_upstream;
mod tenant_charges;
mod tenant_shares;
mod tenants;
#[cfg(test)]
mod tests;
mod ttft_wait_budget;
mod upstream;
mod view;
mod waiters;
mod wake_times;

pub use admission_request::{ForcedDecision, Refusal, Settled, Ticket};
pub use capacity::Resources;
pub use grant::{Grant, GrantId};
pub use process_lease::LeaseKind;
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
use condition_span::{Gap, Span};
use fit_set::{FitSet, earlier};
use floors::{Floors, Holder, UnderFloor, floor_slots};
use lanes::{Head, Lanes, LineKey, LinePosition, Turn};
use lazy_order::LazyOrder;
use limit_event_exchange::LimitEventExchange;
use limiter::{Limiter, Tracked};
use pool::{Assignment, Pool};
use predict::Paces;
use preempt::Borrowed;
use queue::{MAX_POSITION, Queue, QueueSpace};
use requirements::{CallClass, Candidate, Requirements, ReservedResources, from_parts, parts};
use select::{HeadReservation, Order, Pick, Selector};
use single_upstream::SingleUpstream;
use tenant_charges::TenantCharge;
use tenant_shares::{TenantShares, TenantUse, UpstreamLoad};
use tenants::{Line, Tenant, TenantId, Tenants};
use ttft_wait_budget::{AwaitedFirstToken, ObjectiveWait};
use upstream::{Admitted, Failed, Limits, MemoryUse, Upstream, UpstreamSlot};
use waiters::{Waiter, Waiters};
