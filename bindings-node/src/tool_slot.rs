//! A slot of a tool (the permission for one use of the tool) that JavaScript owns or waits for.

use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Error, ToolPermit};
use tidegate_bindings::{GrantedTool, RuntimeBound, ToolRequestHandle, response_closed};

use crate::bridge::{CompletionKind, Outcome, Port, Row};
use crate::context::Context;
use crate::response::write_failure;

/// The JavaScript spelling of the option that releases the caller's model slots while the caller
/// waits for a tool or uses it.
pub(crate) const YIELD_OPTION: &str = "{ yieldSlot: true }";

/// A request for a slot of a tool. Until `wait` is called, dropping it removes the request from the
/// queue, or releases the slot if it was granted.
#[napi]
pub struct ToolRequest(pub(crate) ToolRequestHandle);

#[napi]
impl ToolRequest {
    /// A warning if the caller has to wait for the tool and keeps a model slot while it waits. Null
    /// if the caller need not wait or keeps no model slot.
    #[napi(getter)]
    pub fn advice(&self) -> Option<&str> {
        self.0.advice()
    }

    /// Starts the wait for the slot. The permit, or a failure, is delivered under `number`. If this
    /// method was called before, a failure is delivered.
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

/// A slot of a tool that was granted. If it is dropped, the slot is released. The garbage collector
/// drops it if the program has not closed it.
#[napi]
pub struct Permit {
    permit: Mutex<Option<RuntimeBound<ToolPermit>>>,
    /// The context in which the slot was requested. Its list of held tools includes this tool.
    context: tidegate::Context,
}

#[napi]
impl Permit {
    /// Returns the context for calls while the slot is held: `outer`, with this tool in its list of
    /// held tools. If `outer` is undefined, the context is the one in which the slot was requested.
    #[napi]
    pub fn context(&self, outer: Option<&Context>) -> Context {
        let mut context = outer.map_or_else(|| self.context.clone(), |outer| outer.0.clone());
        context.holds = self.context.holds.as_ref().map(|held| held.joined(context.holds.as_ref()));
        Context(context)
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
