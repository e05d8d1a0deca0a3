//! The bridge between tokio's workers and Python's event loops.
//!
//! Promises: workers never take the GIL and never touch a Python object; what they finish goes into a queue per event loop and the loop is
//! woken once for a batch; cancelling the Python side drops the Rust side at once, and a result that arrives later is dropped where it
//! arrives; a thread that works for somebody who left waits for the gate no longer; a forked child gets a runtime of its own and leaves its parent's alone; the process can exit at any moment.

mod bell;
mod block;
mod clock;
mod held;
mod mailbox;
mod port;
mod queue;
mod ring;
pub(crate) mod runtime;
mod scope;
mod threads;
mod waiter;

pub(crate) use block::block_on;
pub(crate) use clock::{Clock, is_virtual};
pub(crate) use held::Held;
pub(crate) use mailbox::{Mailbox, Post};
pub(crate) use port::{Drain, Port};
pub(crate) use queue::Outcome;
pub(crate) use ring::{Pull, Pulled, Ring};
pub(crate) use scope::Scope;
pub(crate) use waiter::Waiter;
