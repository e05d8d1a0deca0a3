//! A request for a slot of a tool, which has the slot already or is queued for it.

use std::sync::Arc;

use super::tool_wait::ToolWaitGuard;
use super::{DeadlockGuard, HeldSlots, ToolPermit, Tools};
use crate::admission::ReadAheadGuard;
use crate::context::Chain;
use crate::error::Error;
use crate::schedule::Ticket;

/// A request for a slot of a tool, from [`Gate::ask_tool`](crate::Gate::ask_tool). It has its slot
/// already, or is queued. Dropping it releases the slot, or removes the request from the queue.
///
/// ```no_run
/// # async fn run(gate: tidegate::Gate) -> Result<(), tidegate::Error> {
/// let pending = gate.ask_tool("db", &tidegate::Context::default(), false)?;
/// if let Some(held) = pending.while_holding() {
/// eprintln!("{}", held.advice("yield_slot"));
/// }
/// let permit = pending.granted().await?;
/// # drop(permit);
/// # Ok(()) }
/// ```
#[must_use = "dropping the request releases its slot"]
pub struct PendingToolPermit(pub(super) State);

/// Whether the request has its slot or is queued for it.
pub(super) enum State {
    Acquired(Box<ToolPermit>),
    Queued(Arc<Tools>, Box<QueuedRequest>),
}

/// A request that is queued for its slot.
pub(super) struct QueuedRequest {
    pub(super) ticket: Ticket,
    pub(super) holds: Option<Chain>,
    pub(super) yielded: Vec<ReadAheadGuard>,
    pub(super) entry: ToolWaitGuard,
    pub(super) wait: Option<DeadlockGuard>,
}

impl PendingToolPermit {
    /// Returns the model slots that stay in use while the task waits for the tool. `None` if there
    /// are none, or if the task does not have to wait.
    ///
    /// Code that waits for a tool while it holds a model slot should be changed: log
    /// [`HeldSlots::advice`] as a warning.
    pub fn while_holding(&self) -> Option<&HeldSlots> {
        match &self.0 {
            State::Acquired(_) => None,
            State::Queued(_, request) => request.entry.tool_wait.held.as_ref(),
        }
    }

    /// Waits for the slot, and returns it. Returns immediately if the request has its slot already.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue, or releases the slot.
    ///
    /// # Errors
    ///
    /// `Refused` if the gate rejects the request while it waits; for example, with the reason
    /// `WaitBudget` if the wait exceeds the tool's `wait` setting.
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
