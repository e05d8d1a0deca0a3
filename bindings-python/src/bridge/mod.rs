//! The bridge between the worker threads of the tokio runtime and Python's event loops.
//!
//! # Guarantees
//!
//! - Worker threads of the runtime never take the GIL and never touch a Python object. Their
//!   results go into a queue per event loop, and the loop is woken once per batch.
//! - Cancelling a coroutine drops its native future at once. A result that arrives later is dropped
//!   on arrival.
//! - When the loop over a map is left, the threads of its items stop waiting for the gate.
//! - A forked child process gets its own runtime, and does not touch that of its parent.
//! - The process can exit at any moment, also while calls are in flight.

mod blocking_wait;
mod completions;
mod executor_threads;
mod loop_actions;
mod loop_port;
mod loop_waker;
mod lost_bodies;
mod result_waiter;
pub(crate) mod runtime;
mod thread_waits;
mod virtual_clock;

pub(crate) use blocking_wait::block_on;
pub(crate) use completions::{Outcome, Queue, Ready};
pub(crate) use loop_actions::{LoopAction, Mailbox};
pub(crate) use loop_port::{Drain, Port};
pub(crate) use lost_bodies::{LostBodies, LostBodyWatch, PendingRead};
pub(crate) use result_waiter::Waiter;
pub(crate) use thread_waits::Scope;
pub(crate) use virtual_clock::{Clock, is_virtual};
