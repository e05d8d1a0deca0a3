//! Actions that workers want to run on the thread of an event loop.

use std::sync::Arc;

use pyo3::prelude::*;

use super::Port;
use super::queue::{Done, Queue};

/// An action for the thread of an event loop. It is dropped if the loop is closed first.
pub(crate) trait Post: Send {
    /// Runs the action. An error is reported as unraisable.
    fn deliver(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()>;
}

/// Sends actions to the thread of one event loop.
pub(crate) struct Mailbox(Arc<Queue>);

impl Mailbox {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self(queue)
    }

    /// Queues an action.
    pub(crate) fn post(&self, post: impl Post + 'static) {
        self.0.push(Done::Post(Box::new(post)));
    }
}
