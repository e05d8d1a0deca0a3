//! A request for a tool, in two steps: the immediate result, and the wait.

use std::sync::Arc;

use super::tool_wait::ToolWaitGuard;
use super::{HeldSlots, ToolPermit, Tools, Wait};
use crate::admission::ReadAheadGuard;
use crate::context::Chain;
use crate::error::Error;
use crate::schedule::Ticket;

/// A request for a tool: holds its slot, or waits for one in [`PendingToolPermit::granted`]. Dropping it
/// releases the slot, or leaves the queue.
#[must_use = "dropping the request releases its slot"]
pub struct PendingToolPermit {
    state: State,
    held: Option<HeldSlots>,
}

/// Whether the slot has been acquired.
enum State {
    Acquired(Box<ToolPermit>),
    PendingState(Arc<Tools>, Box<PendingState>),
}

/// The state of a request that has to wait.
pub(super) struct PendingState {
    pub(super) ticket: Ticket,
    pub(super) holds: Option<Chain>,
    pub(super) yielded: Vec<ReadAheadGuard>,
    pub(super) entry: ToolWaitGuard,
    pub(super) wait: Option<Wait>,
}

impl PendingToolPermit {
    /// Creates a request that has its slot.
    pub(super) fn acquired(permit: ToolPermit) -> Self {
        Self { state: State::Acquired(Box::new(permit)), held: None }
    }

    /// Creates a request that has to wait.
    pub(super) fn waiting(tools: Arc<Tools>, waits: PendingState) -> Self {
        let held = waits.entry.tool_wait.held.clone();
        Self { state: State::PendingState(tools, Box::new(waits)), held }
    }

    /// Returns the model slots that the task keeps while it waits for the tool, or `None` if it
    /// keeps none or need not wait. The author of the code should be warned about them
    /// ([`HeldSlots::advice`]).
    pub fn while_holding(&self) -> Option<&HeldSlots> {
        self.held.as_ref()
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
        match self.state {
            State::Acquired(permit) => Ok(permit.used()),
            State::PendingState(tools, waits) => tools.granted(*waits).await,
        }
    }
}

impl std::fmt::Debug for PendingToolPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = matches!(self.state, State::PendingState(..));
        f.debug_struct("PendingToolPermit").field("waits", &waits).field("held", &self.held).finish()
    }
}
