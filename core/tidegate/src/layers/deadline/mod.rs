//! The deadline: limits the whole call, including its waits, retries and stream.
//!
//! Streams end at the deadline too, because a call whose response is no longer needed holds a slot.
//! The timer of a body runs only while the body is read. A separate watch therefore closes the
//! bodies of readers that have stopped reading.

mod body;
mod layer;
mod watch;

pub use layer::DeadlineLayer;
