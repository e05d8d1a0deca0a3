//! Retry: makes the attempts of each call, one after the other.
//!
//! Retries in several layers multiply: three attempts in the SDK times four in a gateway are
//! twelve, most of them while the upstream is overloaded. Therefore one layer makes all attempts of
//! a call, one retry budget limits them per target, and each returned failure carries
//! `x-should-retry: false`.
//!
//! The slot is released before a backoff. A retry queues again with its original age and start tag,
//! even if the queue is full.

mod layer;

pub use layer::RetryLayer;
pub use tidegate_policy::retry::{Failure, GiveUpReason, Next, decide};
