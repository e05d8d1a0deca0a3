//! Retry: the driver of a call's attempts.
//!
//! Why here and not in every SDK above: attempts multiply. Three in the SDK times four in a gateway is twelve, all of them at the moment when
//! the upstream can bear them least. So there is one driver per call, with one budget per target, and everything handed up says
//! `x-should-retry: false` to whoever would try again.
//!
//! The slot is given back before a backoff sleep. A retry queues again with its old age and start tag, past the queue bound.

mod layer;
mod policy;

pub use layer::RetryLayer;
pub use policy::{Failure, Next, Why, decide};
