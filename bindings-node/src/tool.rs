//! A tool's slot, as JavaScript holds it, and the asking for one.

use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Error, Gate, ToolPermit, tool};
use tokio::runtime::Handle;

use crate::bridge::{Held, Kind, Outcome, Port, Row};
use crate::context::Context;
use crate::reply::write_failure;

/// How JavaScript says it.
const OPTION: &str = "{ yieldSlot: true }";

/// A tool that was asked for. Dropping it gives the slot back, or leaves the queue.
#[napi]
pub struct Asked {
    asked: Mutex<Option<Held<std::result::Result<tool::Asked, Error>>>>,
    context: tidegate::Context,
    advice: Option<String>,
}

impl Asked {
    /// Takes a free slot, or prepares the wait. Inside the runtime.
    pub(crate) fn of(gate: &Gate, tool: &str, context: tidegate::Context, yield_slot: bool) -> Self {
        let asked = gate.ask_tool(tool, &context, yield_slot);
        let held = asked.as_ref().ok().and_then(tool::Asked::while_holding);
        let advice = held.map(|held| held.advice(OPTION));
        Self { asked: Mutex::new(Some(Held::new(asked, Handle::current()))), context, advice }
    }
}

#[napi]
impl Asked {
    /// What is to be said to whoever waits here while holding a model slot.
    #[napi(getter)]
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Waits for the slot; its permit, or failure, comes with the number. Once.
    #[napi]
    pub fn granted(&self, port: &Port, number: u32) {
        let asked = self.asked.lock().take().and_then(Held::into_inner);
        let mut context = self.context.clone();
        port.submit(number, async move {
            let Some(asked) = asked else { return Err(crate::failure::closed()) };
            let permit = asked?.granted().await?;
            context.holds = Some(permit.chain());
            Ok(Permit { permit: Mutex::new(Some(Held::new(permit, Handle::current()))), context })
        });
    }
}

/// A slot of a tool. Dropping it, which the garbage collector does at the latest, gives it back.
#[napi]
pub struct Permit {
    permit: Mutex<Option<Held<ToolPermit>>>,
    context: tidegate::Context,
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
