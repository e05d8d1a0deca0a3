//! A tool's slot that the host's program holds or waits for.

use parking_lot::Mutex;
use tidegate::{Context, Error, Gate, PendingToolPermit, ToolPermit};

use crate::error::forked;
use crate::runtime_bound::RuntimeBound;

/// A request for a slot of a tool. Dropping it releases the slot, or leaves the queue.
pub struct ToolRequest {
    asked: Mutex<Option<RuntimeBound<Result<PendingToolPermit, Error>>>>,
    context: Context,
    advice: Option<String>,
}

/// A slot of a tool, and the context of the calls that its holder makes.
pub struct GrantedTool {
    /// The slot. Dropping it releases the slot.
    pub permit: RuntimeBound<ToolPermit>,
    /// The context.
    pub context: Context,
}

impl ToolRequest {
    /// Takes a free slot, or prepares to wait for one. `option` is how the host language says that
    /// the model slot is yielded during the wait. Panics outside a runtime.
    pub fn new(gate: &Gate, tool: &str, context: Context, yields_slot: bool, option: &str) -> Self {
        let asked = gate.ask_tool(tool, &context, yields_slot);
        let held = asked.as_ref().ok().and_then(PendingToolPermit::while_holding);
        let advice = held.map(|held| held.advice(option));
        Self { asked: Mutex::new(Some(RuntimeBound::here(asked))), context, advice }
    }

    /// Returns the warning for a caller that waits here while it holds a model slot.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Waits for the slot. Dropping the future leaves the queue. `None` if this was called before,
    /// or the request is closed.
    pub fn granted(&self) -> Option<impl Future<Output = Result<GrantedTool, Error>> + Send + use<>> {
        let asked = self.asked.lock().take()?;
        let asked = asked.into_inner().unwrap_or_else(|| Err(forked()));
        let mut context = self.context.clone();
        Some(async move {
            let permit = asked?.granted().await?;
            context.holds = Some(permit.chain());
            Ok(GrantedTool { permit: RuntimeBound::here(permit), context })
        })
    }

    /// Withdraws the request. Idempotent.
    pub fn close(&self) {
        let asked = self.asked.lock().take();
        drop(asked);
    }
}
