//! The bridge between the workers of the tokio runtime and the event loops of Node: one for the
//! main thread, and one for each worker thread.
//!
//! # Guarantees
//!
//! - Workers of tokio never touch a JavaScript value. Their results go into a queue per event loop,
//!   and the loop is woken once per batch.
//! - Cancelling a number drops its future at once. A result that arrives later is dropped on
//!   arrival.
//! - An event loop can end at any moment. Its futures are then dropped.

mod clock;
mod port;
mod queue;
pub(crate) mod runtime;

pub(crate) use port::Port;
pub(crate) use queue::{CompletionKind, Outcome, Queue, Row};
