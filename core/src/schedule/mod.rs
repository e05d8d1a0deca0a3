//! One scheduler per target (and per tool): who holds a slot, who waits, who is next, and who is told no.
//!
//! A call is *admissible* when the target has a slot (`in flight < slots in force`, and fewer calls await their first token than
//! may), its tenant has room under its own cap and in its own tokens, the
//! rate budgets and the engine's memory have room for it, and no cool-down is on. A budget has room for a call that is larger than it
//! when it is full: what it takes beyond becomes debt.
//!
//! Who goes next, of those that are admissible (`select`): tenants and lanes that hold less than their floor; then by lane, where a lane whose
//! oldest call has been raised by its age goes first for an eighth of the capacity (`lanes`); inside a lane, tenants by start-time fair queueing on
//! cost; inside a tenant, the oldest call. A head that does not fit is overtaken until it is *aged*; then what it lacks is *held* for it.
//!
//! # Parts
//!
//! [`Scheduler`] coordinates these parts, each of which owns its state:
//!
//! - [`queue::Queue`]: the calls that wait, in lines by tenant and lane, and what tenants are charged.
//! - [`capacity::Capacity`]: what calls compete for, and who holds it. Behind it, [`upstream::Upstream`]
//!   is a single server or a pool of replicas; the scheduler does not know which.
//! - [`select::Order`]: floors, and what is held for an aged head. [`select::Selector`] applies the
//!   order to the queue and the capacity.
//! - [`preempt::Borrowed`]: the calls in flight that may be called back for a floor.
//! - [`predict::Predictor`]: the pace at which slots come free, and the waits that follow from it.
//!
//! # Invariants
//!
//! After every method that takes `now`, followed by [`Scheduler::next`] until it returns `None`:
//!
//! - *work-conserving*: no call waits that is admissible, but for those that would take what is held, and those behind an aged head of their line;
//! - `in flight <= slots in force` unless their number fell (calls are never killed: slots retire as calls end) or calls were forced (observe mode);
//! - each call that was queued leaves exactly once: dispatched, refused or withdrawn;
//! - what an attempt was charged is given back, settled, or stands: once.
//!
//! A decision takes O(log n) in the calls that wait. The scheduler knows no clock and does no I/O:
//! each method is told `now`, and [`Scheduler::next_wake`] says when to ask again. `W` is whatever
//! the driver needs to answer a waiting call.

mod admit;
mod available;
mod budgets;
mod capacity;
mod charges;
mod explain;
mod fit_set;
mod floors;
mod grant;
mod ids;
mod lanes;
mod lazy_order;
mod limiter;
mod load;
mod pace;
mod pool;
mod predict;
mod preempt;
mod queue;
mod reason;
mod requirements;
mod rule;
mod scheduler;
mod select;
mod settings;
mod shedding;
mod single;
mod span;
mod tenant_tokens;
mod tenants;
#[cfg(test)]
mod tests;
mod ticket;
mod upstream;
mod view;
mod waiters;
mod wake;

pub use budgets::Resources;
pub use grant::{Grant, GrantId};
pub use ids::WaiterId;
pub use reason::Reason;
pub use rule::{Rule, Why};
pub use scheduler::Scheduler;
pub use settings::Settings;
pub use ticket::{ForcedDecision, Refusal, Settled, Ticket};
pub use upstream::LimitChange;
pub use view::{LaneView, TenantView, View};
