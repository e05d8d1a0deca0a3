//! A target's slot, as JavaScript holds it.

use std::time::Duration;

use http::StatusCode;
use napi::{Error as JsError, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Context, Error, Gate, duration};
use tokio::runtime::Handle;

use crate::bridge::{Held, Kind, Outcome, Row};
use crate::reply::write_failure;

/// A slot of a target, held for a call that goes around every fetch. Dropping it gives it back.
#[napi]
pub struct Slot(Mutex<Option<Held<tidegate::Slot>>>);

impl Slot {
    /// Waits for a slot. Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        gate: Gate,
        target: String,
        context: Context,
    ) -> std::result::Result<Self, Error> {
        let slot = gate.acquire_slot(&target, &context).await?;
        Ok(Self(Mutex::new(Some(Held::new(slot, Handle::current())))))
    }
}

#[napi]
impl Slot {
    /// The base URL of the replica that the slot is at, where its target is a pool.
    #[napi(getter)]
    pub fn replica(&self) -> Option<String> {
        let mut held = self.0.lock();
        held.as_mut()?.get_mut()?.replica().map(str::to_owned)
    }

    /// Says that the upstream failed the call, and returns whether the same call may succeed later; undefined once it was given back.
    #[napi]
    pub fn failed(&self, status: Option<u32>, retry_after: Option<f64>) -> Result<Option<bool>> {
        let status = status.map(status_of).transpose()?;
        let retry_after = retry_after.map(seconds).transpose()?;
        let mut held = self.0.lock();
        let Some(held) = held.as_mut() else { return Ok(None) };
        // A waiting call that is told now may need a timer.
        let runtime = held.runtime().clone();
        let _context = runtime.enter();
        Ok(held.get_mut().map(|slot| slot.failed(status, retry_after)))
    }

    /// Gives the slot back; with `well`, the call went well unless it was said to have failed. Idempotent.
    #[napi]
    pub fn close(&self, well: bool) {
        let slot = self.0.lock().take();
        if let Some(mut slot) = slot {
            let runtime = slot.runtime().clone();
            let _context = runtime.enter();
            if let Some(slot) = slot.get_mut().filter(|_| well) {
                slot.succeeded();
            }
        }
    }
}

fn status_of(status: u32) -> Result<StatusCode> {
    let known = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    known.ok_or_else(|| {
        JsError::new(Status::InvalidArg, format!("status: {status} is no HTTP status; give 100 to 999"))
    })
}

fn seconds(seconds: f64) -> Result<Duration> {
    duration::from_secs(seconds).ok_or_else(|| {
        JsError::new(
            Status::InvalidArg,
            format!("retryAfter: {seconds} is not valid; give a finite number of seconds, 0 or more"),
        )
    })
}

impl Outcome for std::result::Result<Slot, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Ok(slot) => {
                row.kind(Kind::Slot)?;
                row.put(0, slot)
            }
            Err(error) => write_failure(&error, row),
        }
    }
}
