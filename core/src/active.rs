//! How many calls a gate has under way, so that it can wait for the last one.

use std::sync::Arc;

use tokio::sync::watch;

/// The count of one gate.
#[derive(Debug, Default)]
pub(crate) struct Active(watch::Sender<usize>);

/// One call under way; counted until dropped.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Active>);

impl Active {
    /// Counts one more.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        self.0.send_modify(|count| *count += 1);
        Entered(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Resolves when none is under way.
    pub(crate) async fn none(&self) {
        // Fails only where the sender is gone, and that is `self`.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
