//! The bridge between tokio's workers and Python's event loops.
//!
//! # Guarantees
//!
//! - Workers never take the GIL and never touch a Python object. Their results go into a queue per
//!   event loop, and the loop is woken once per batch.
//! - Cancelling the Python side drops the Rust side at once. A result that arrives later is dropped
//!   on arrival.
//! - A thread that works for a map that was left stops waiting for the gate.
//! - A forked child gets a runtime of its own, and does not touch that of its parent.
//! - The process can exit at any moment.

mod bell;
mod block;
mod clock;
mod mailbox;
mod port;
mod queue;
pub(crate) mod runtime;
mod scope;
mod threads;
mod waiter;

pub(crate) use block::block_on;
pub(crate) use clock::{Clock, is_virtual};
pub(crate) use mailbox::{Mailbox, Post};
pub(crate) use port::{Drain, Port};
pub(crate) use queue::{Outcome, Queue};
pub(crate) use scope::Scope;
pub(crate) use waiter::Waiter;
