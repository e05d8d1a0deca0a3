//! A request for a tool, in two steps: the immediate result, and the wait.

use std::sync::Arc;

use super::tool_wait::ToolWaitGuard;
use super::{DeadlockGuard, HeldSlots, ToolPermit, Tools};
use crate::admission::ReadAheadGuard;
use crate::context::Chain;
use crate::error::Error;
use crate::schedule::Ticket;

/// A request for a tool: holds its slot, or waits for one in [`PendingToolPermit::granted`]. Dropping it
/// releases the slot, or leaves the queue.
#[must_use = "dropping the request releases its slot"]
pub struct PendingToolPermit(pub(super) State);

/// Whether the slot has been acquired.
pub(super) enum State {
    Acquired(Box<ToolPermit>),
    Queued(Arc<Tools>, Box<QueuedRequest>),
}

/// A request that has to wait for its slot.
pub(super) struct QueuedRequest {
    pub(super) ticket: Ticket,
    pub(super) holds: Option<Chain>,
    pub(super) yielded: Vec<ReadAheadGuard>,
    pub(super) entry: ToolWaitGuard,
    pub(super) wait: Option<DeadlockGuard>,
}

impl PendingToolPermit {
    /// Returns the model slots that the task keeps while it waits for the tool, or `None` if it
    /// keeps none or need not wait. The author of the code should be warned about them
    /// ([`HeldSlots::advice`]).
    pub fn while_holding(&self) -> Option<&HeldSlots> {
        match &self.0 {
            State::Acquired(_) => None,
            State::Queued(_, request) => request.entry.tool_wait.held.as_ref(),
        }
    }

    /// Returns the slot as soon as there is one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, or releases the slot.
    ///
    /// # Errors
    ///
    /// `Refused`, with the same reasons as for calls.
    pub async fn granted(self) -> Result<ToolPermit, Error> {
        match self.0 {
            State::Acquired(permit) => Ok(permit.into_used()),
            State::Queued(tools, request) => tools.wait_for_slot(*request).await,
        }
    }
}

impl std::fmt::Debug for PendingToolPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = matches!(self.0, State::Queued(..));
        f.debug_struct("PendingToolPermit")
            .field("waits", &waits)
            .field("held", &self.while_holding())
            .finish()
    }
}
