//! A slot of a tool that a program holds or waits for.

use parking_lot::Mutex;
use tidegate::{Context, Error, Gate, PendingToolPermit, ToolPermit};

use crate::error::used_after_fork;
use crate::runtime_bound::RuntimeBound;

/// A request for a slot of a tool. Dropping it removes the request from the queue, or releases the
/// slot if it was granted.
pub struct ToolRequestHandle {
    asked: Mutex<Option<RuntimeBound<Result<PendingToolPermit, Error>>>>,
    context: Context,
    advice: Option<String>,
}

/// A slot of a tool, and the context for the calls of its holder.
pub struct GrantedTool {
    /// The slot. Dropping the permit releases it.
    pub permit: RuntimeBound<ToolPermit>,
    /// The context for calls while the slot is held, which includes the tool in the list of held
    /// tools.
    pub context: Context,
}

impl ToolRequestHandle {
    /// Takes a free slot, or joins the queue for one.
    ///
    /// `yields_slot` says whether the model slots of the caller are released during the wait.
    /// `option` is the spelling of that setting in the host language, for [`Self::advice`].
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

    /// Returns the warning for a caller that would wait here while it holds a model slot, or `None`
    /// if it holds none.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Returns the wait for the slot, or `None` if this was called before or the request is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue.
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

    /// Withdraws the request, or releases its slot. Has no effect after [`Self::wait`]. Idempotent.
    pub fn close(&self) {
        let asked = self.asked.lock().take();
        drop(asked);
    }
}
