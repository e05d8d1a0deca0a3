//! The bridge between the worker threads of the tokio runtime and the event loops of Node. The main
//! thread of JavaScript and each of its worker threads have an event loop of their own.
//!
//! JavaScript identifies each native future by a number, under which its result is delivered.
//!
//! # Guarantees
//!
//! - Worker threads of tokio never touch a JavaScript value. Their results go into a queue per
//!   event loop, and the loop is woken once per batch.
//! - If JavaScript cancels a number, its future is dropped at once. A result that arrives later is
//!   dropped on arrival.
//! - An event loop can end at any moment. Its futures are then dropped.

mod completions;
mod loop_port;
pub(crate) mod runtime;
mod virtual_clock;

pub(crate) use completions::{CompletionKind, Outcome, Queue, Row};
pub(crate) use loop_port::Port;
