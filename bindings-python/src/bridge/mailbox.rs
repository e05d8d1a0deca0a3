//! What workers want done on a loop's thread, of their own accord.

use std::sync::Arc;

use pyo3::prelude::*;

use super::Port;
use super::queue::{Done, Queue};

/// Something to do on the loop's thread. Dropped undone where the loop is closed first.
pub(crate) trait Post: Send {
    /// Does it. An error is reported, and is nobody else's.
    fn deliver(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()>;
}

/// The way to one loop's thread.
pub(crate) struct Mailbox(Arc<Queue>);

impl Mailbox {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self(queue)
    }

    pub(crate) fn post(&self, post: impl Post + 'static) {
        self.0.push(Done::Post(Box::new(post)));
    }
}
