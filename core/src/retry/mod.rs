//! Retry: drives the attempts of each call, one after the other.
//!
//! Attempts multiply: three in the SDK times four in a gateway is twelve, all of them when the
//! upstream can bear them least. So one driver makes all attempts of a call, one retry budget
//! limits them per target, and every failure that is handed up carries `x-should-retry: false`.
//!
//! The slot is released before a backoff. A retry queues again with its old age and start tag,
//! beyond the bound of the queue.

mod layer;

pub use layer::RetryLayer;
pub use tidegate_policy::retry::{Failure, GiveUpReason, Next, decide};
