//! The deadline layer: limits the duration of the whole call, including its waits, retries and
//! stream.
//!
//! Streams end at the deadline too, because a call holds a slot even if its response is no longer
//! needed. The timer of a body runs only while the body is read. A separate task therefore closes
//! the bodies of readers that have stopped reading.

mod body;
mod layer;
mod watch;

pub use layer::DeadlineLayer;
