//! The requests that currently wait for a tool, so that [`Gate::explain`](crate::Gate::explain) can
//! find them. Requests that get a slot without waiting are not included.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::HeldSlots;
use crate::call;
use crate::context::{Context, Lane, truncate_name};
use crate::schedule::{Ticket, WaiterId};

/// One request that waits for a slot of a tool.
pub(crate) struct ToolWait {
    /// The number of the wait. Calls and waits for tools are numbered in one sequence.
    pub(crate) id: u64,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) tool: Arc<str>,
    pub(crate) tenant: Arc<str>,
    pub(crate) lane: Lane,
    pub(crate) queued_at: Instant,
    /// The model slots that stay in use, idle, while the task waits. `None` if there are none.
    pub(crate) held: Option<HeldSlots>,
    waiter: Mutex<Option<WaiterId>>,
}

impl ToolWait {
    pub(super) fn new(tool: &Arc<str>, ticket: &Ticket, context: &Context, held: Option<HeldSlots>) -> Self {
        Self {
            id: call::number(),
            label: context.call.as_ref().map(truncate_name),
            tool: tool.clone(),
            tenant: ticket.tenant.clone(),
            lane: ticket.lane,
            queued_at: ticket.queued_at,
            held,
            waiter: Mutex::new(None),
        }
    }

    /// Stores the id that the request has in the queue of the tool.
    pub(super) fn set_waiter(&self, waiter: WaiterId) {
        *self.waiter.lock() = Some(waiter);
    }

    /// Returns the id that the request has in the queue of the tool. `None` if it is not queued
    /// yet.
    pub(crate) fn waiter(&self) -> Option<WaiterId> {
        *self.waiter.lock()
    }
}

/// The requests that currently wait for a tool of the gate, by [`ToolWait::id`].
#[derive(Default)]
pub(super) struct ToolWaits(Mutex<HashMap<u64, Arc<ToolWait>>>);

impl ToolWaits {
    /// Adds a wait to the current waits. Dropping the returned guard removes it.
    pub(super) fn enter(self: &Arc<Self>, tool_wait: ToolWait) -> ToolWaitGuard {
        let tool_wait = Arc::new(tool_wait);
        self.0.lock().insert(tool_wait.id, tool_wait.clone());
        ToolWaitGuard { tool_wait, tool_waits: self.clone() }
    }

    /// Returns all current waits, in no particular order.
    pub(super) fn all(&self) -> Vec<Arc<ToolWait>> {
        self.0.lock().values().cloned().collect()
    }
}

/// The guard of one wait in [`ToolWaits`]. Dropping the guard removes the wait.
pub(super) struct ToolWaitGuard {
    pub(super) tool_wait: Arc<ToolWait>,
    tool_waits: Arc<ToolWaits>,
}

impl Drop for ToolWaitGuard {
    fn drop(&mut self) {
        self.tool_waits.0.lock().remove(&self.tool_wait.id);
    }
}
