//! The handle on which a helper thread waits, on behalf of an event loop that cannot watch a
//! descriptor.

use std::sync::Arc;

use pyo3::prelude::*;

use super::completions::Queue;

/// Waits for the results of one event loop. It keeps neither the port nor the event loop alive.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Waiter(Arc<Queue>);

impl Waiter {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self(queue)
    }
}

#[pymethods]
impl Waiter {
    /// Blocks until the port has results (returns True) or is closed (returns False).
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.waker.wait());
        !self.0.is_closed()
    }
}
