//! The bridge between tokio's workers and the event loops of Node: one for the main thread, one for each worker thread.
//!
//! Promises: workers of tokio never touch a JavaScript value; what they finish goes into a queue per event loop, and the loop is woken once
//! for a batch; cancelling by number drops the work at once, and a result that arrives later is dropped where it arrives; an event loop
//! can end at any moment, and whatever it had under way is given up.

mod clock;
mod held;
mod port;
mod queue;
mod ring;
pub(crate) mod runtime;

pub(crate) use held::Held;
pub(crate) use port::Port;
pub(crate) use queue::{Kind, Outcome, Queue, Row};
pub(crate) use ring::{Pull, Pulled, Ring};
