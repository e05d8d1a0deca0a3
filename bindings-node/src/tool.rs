//! A tool's slot, as JavaScript holds it.

use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Error, Gate, ToolPermit};
use tokio::runtime::Handle;

use crate::bridge::{Held, Kind, Outcome, Row};
use crate::context::Context;
use crate::reply::write_failure;

/// A slot of a tool. Dropping it, which the garbage collector does at the latest, gives it back.
#[napi]
pub struct Permit {
    permit: Mutex<Option<Held<ToolPermit>>>,
    context: tidegate::Context,
}

impl Permit {
    /// Waits for a slot. Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        gate: Gate,
        tool: String,
        mut context: tidegate::Context,
    ) -> std::result::Result<Self, Error> {
        let permit = gate.acquire_tool(&tool, &context).await?;
        context.holds = Some(permit.chain());
        Ok(Self { permit: Mutex::new(Some(Held::new(permit, Handle::current()))), context })
    }
}

#[napi]
impl Permit {
    /// The context of whatever its holder asks for next.
    #[napi]
    pub fn context(&self) -> Context {
        Context(self.context.clone())
    }

    /// Gives the slot back. Idempotent.
    #[napi]
    pub fn close(&self) {
        let permit = self.permit.lock().take();
        drop(permit);
    }
}

impl Outcome for std::result::Result<Permit, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Ok(permit) => {
                row.kind(Kind::Permit)?;
                row.put(0, permit)
            }
            Err(error) => write_failure(&error, row),
        }
    }
}
