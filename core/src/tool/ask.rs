//! Asking for a tool, in two steps: what is known at once, and the wait.

use std::sync::Arc;

use super::asking::Entry;
use super::{HeldSlots, ToolPermit, Tools, Wait};
use crate::admission::ReadAheadGuard;
use crate::context::Chain;
use crate::error::Error;
use crate::schedule::Ticket;

/// A tool that was asked for: its slot, or the wait for one. Dropping it gives the slot back, or leaves the queue.
#[must_use = "dropping it gives the slot back"]
pub struct Asked {
    state: State,
    held: Option<HeldSlots>,
}

enum State {
    Got(Box<ToolPermit>),
    Waits(Arc<Tools>, Box<Waits>),
}

/// What is needed for the wait.
pub(super) struct Waits {
    pub(super) ticket: Ticket,
    pub(super) holds: Option<Chain>,
    pub(super) handed_back: Vec<ReadAheadGuard>,
    pub(super) entry: Entry,
    pub(super) wait: Option<Wait>,
}

impl Asked {
    pub(super) fn got(permit: ToolPermit) -> Self {
        Self { state: State::Got(Box::new(permit)), held: None }
    }

    pub(super) fn waits(tools: Arc<Tools>, waits: Waits) -> Self {
        let held = waits.entry.asking.held.clone();
        Self { state: State::Waits(tools, Box::new(waits)), held }
    }

    /// The model slots that the same task holds, where it has to wait for the tool: whoever wrote it should be warned.
    pub fn while_holding(&self) -> Option<&HeldSlots> {
        self.held.as_ref()
    }

    /// The slot, as soon as there is one.
    ///
    /// *Cancellation safety*: dropping the future leaves the queue.
    ///
    /// # Errors
    /// `Refused`, as for calls.
    pub async fn granted(self) -> Result<ToolPermit, Error> {
        match self.state {
            State::Got(permit) => Ok(permit.used()),
            State::Waits(tools, waits) => tools.granted(*waits).await,
        }
    }
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = matches!(self.state, State::Waits(..));
        f.debug_struct("Asked").field("waits", &waits).field("held", &self.held).finish()
    }
}
