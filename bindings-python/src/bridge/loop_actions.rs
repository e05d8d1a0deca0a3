//! Actions that worker threads of the runtime send to the thread of an event loop, which runs them.

use std::sync::Arc;

use pyo3::prelude::*;

use super::Port;
use super::completions::{Completion, Queue};

/// An action that runs on the thread of an event loop. If the loop is closed before, the action is
/// dropped.
pub(crate) trait LoopAction: Send {
    /// Runs the action on the thread of the event loop. `port` is the port of the loop. An error is
    /// passed to Python's hook for unraisable exceptions.
    fn run(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()>;
}

/// Sends actions to the thread of one event loop.
pub(crate) struct Mailbox(Arc<Queue>);

impl Mailbox {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self(queue)
    }

    /// Queues an action, and wakes the loop.
    pub(crate) fn post(&self, action: impl LoopAction + 'static) {
        self.0.push(Completion::Action(Box::new(action)));
    }
}
