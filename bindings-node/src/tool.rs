//! A slot of a tool that JavaScript holds or waits for.

use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Error, ToolPermit};
use tidegate_bindings::{GrantedTool, RuntimeBound, ToolRequestHandle, response_closed};

use crate::bridge::{CompletionKind, Outcome, Port, Row};
use crate::context::Context;
use crate::reply::write_failure;

/// The JavaScript spelling of the option that releases the model slot during the wait.
pub(crate) const YIELD_OPTION: &str = "{ yieldSlot: true }";

/// A request for a slot of a tool. Dropping it removes the request from the queue, or releases the
/// slot if it was granted.
#[napi]
pub struct ToolRequest(pub(crate) ToolRequestHandle);

#[napi]
impl ToolRequest {
    /// The warning for a caller that would wait here while it holds a model slot; null if it holds
    /// none.
    #[napi(getter)]
    pub fn advice(&self) -> Option<&str> {
        self.0.advice()
    }

    /// Waits for the slot. The permit, or a failure, arrives under `number`. Fails if it was called
    /// before.
    #[napi]
    pub fn wait(&self, port: &Port, number: u32) {
        let granted = self.0.wait();
        port.submit(number, async move {
            match granted {
                Some(granted) => granted.await,
                None => Err(response_closed()),
            }
        });
    }
}

/// A slot of a tool. Dropping it, which the garbage collector does at the latest, releases the
/// slot.
#[napi]
pub struct Permit {
    permit: Mutex<Option<RuntimeBound<ToolPermit>>>,
    context: tidegate::Context,
}

#[napi]
impl Permit {
    /// Returns the context for calls while the slot is held, which includes the tool in the list of
    /// held tools.
    #[napi]
    pub fn context(&self) -> Context {
        Context(self.context.clone())
    }

    /// Releases the slot of the tool. Idempotent.
    #[napi]
    pub fn close(&self) {
        let permit = self.permit.lock().take();
        drop(permit);
    }
}

impl Outcome for std::result::Result<GrantedTool, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Ok(GrantedTool { permit, context }) => {
                row.kind(CompletionKind::Permit)?;
                row.put(0, Permit { permit: Mutex::new(Some(permit)), context })
            }
            Err(error) => write_failure(&error, row),
        }
    }
}
