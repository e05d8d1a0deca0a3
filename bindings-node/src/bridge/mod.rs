//! The bridge between tokio's workers and the event loops of Node: one for the main thread, and one
//! for each worker thread.
//!
//! # Guarantees
//!
//! - Workers of tokio never touch a JavaScript value. Their results go into a queue per event loop,
//!   and the loop is woken once per batch.
//! - Cancelling a number drops its work at once. A result that arrives later is dropped on arrival.
//! - An event loop can end at any moment. Its work is then dropped.

mod clock;
mod port;
mod queue;
pub(crate) mod runtime;

pub(crate) use port::Port;
pub(crate) use queue::{Kind, Outcome, Queue, Row};
