//! A tool's slot that JavaScript holds or waits for.

use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Error, ToolPermit};
use tidegate_bindings::{GrantedTool, RuntimeBound, ToolRequest, response_closed};

use crate::bridge::{Kind, Outcome, Port, Row};
use crate::context::Context;
use crate::reply::write_failure;

/// How JavaScript says that the model slot is yielded.
pub(crate) const YIELD_OPTION: &str = "{ yieldSlot: true }";

/// A request for a slot of a tool. Dropping it releases the slot, or leaves the queue.
#[napi]
pub struct Asked(pub(crate) ToolRequest);

#[napi]
impl Asked {
    /// The warning for a caller that waits here while it holds a model slot.
    #[napi(getter)]
    pub fn advice(&self) -> Option<&str> {
        self.0.advice()
    }

    /// Waits for the slot, once. The permit, or a failure, arrives with the number.
    #[napi]
    pub fn granted(&self, port: &Port, number: u32) {
        let granted = self.0.granted();
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
    /// Returns the context of the calls that the holder makes.
    #[napi]
    pub fn context(&self) -> Context {
        Context(self.context.clone())
    }

    /// Releases the slot. Idempotent.
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
                row.kind(Kind::Permit)?;
                row.put(0, Permit { permit: Mutex::new(Some(permit)), context })
            }
            Err(error) => write_failure(&error, row),
        }
    }
}
