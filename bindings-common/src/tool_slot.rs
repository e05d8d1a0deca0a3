//! Handles for a slot of a tool (the permission for one use of the tool) that a program in the host
//! language owns or waits for.

use parking_lot::Mutex;
use tidegate::{Context, Error, Gate, PendingToolPermit, ToolPermit};

use crate::error::used_after_fork;
use crate::runtime_bound::RuntimeBound;

/// A request for a slot of a tool. Until [`Self::wait`] is called, dropping the handle removes the
/// request from the queue, or releases the slot if it was granted.
pub struct ToolRequestHandle {
    asked: Mutex<Option<RuntimeBound<Result<PendingToolPermit, Error>>>>,
    context: Context,
    advice: Option<String>,
}

/// A slot of a tool, and the context for the calls of its holder.
pub struct GrantedTool {
    /// The slot. Dropping the permit releases it.
    pub permit: RuntimeBound<ToolPermit>,
    /// The context for calls while the slot is held. Its list of held tools includes this tool.
    pub context: Context,
}

impl ToolRequestHandle {
    /// Requests a slot of a tool: takes a free slot, or joins the queue.
    ///
    /// If `yields_slot` is `true`, the model slots of the caller can be released while the caller
    /// waits for the tool or uses it. `option` is the spelling of that setting in the host
    /// language. It is inserted into the text of [`Self::advice`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn new(gate: &Gate, tool: &str, context: Context, yields_slot: bool, option: &str) -> Self {
        let asked = gate.ask_tool(tool, &context, yields_slot);
        let held = asked.as_ref().ok().and_then(PendingToolPermit::while_holding);
        let advice = held.map(|held| held.advice(option));
        Self { asked: Mutex::new(Some(RuntimeBound::in_current(asked))), context, advice }
    }

    /// Returns a warning if the caller has to wait for the tool and keeps a model slot while it
    /// waits. Returns `None` if the caller need not wait or keeps no model slot.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Returns a future that resolves to the slot when it is granted. `None` if this function was
    /// called before or the request was closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue, or releases the slot if it was
    /// granted.
    pub fn wait(&self) -> Option<impl Future<Output = Result<GrantedTool, Error>> + Send + use<>> {
        let asked = self.asked.lock().take()?;
        let asked = asked.into_inner().unwrap_or_else(|| Err(used_after_fork()));
        let mut context = self.context.clone();
        Some(async move {
            let permit = asked?.granted().await?;
            context.holds = Some(permit.chain());
            Ok(GrantedTool { permit: RuntimeBound::in_current(permit), context })
        })
    }

    /// Removes the request from the queue, or releases the slot if it was granted. Has no effect
    /// after [`Self::wait`]. Idempotent.
    pub fn close(&self) {
        let asked = self.asked.lock().take();
        drop(asked);
    }
}
