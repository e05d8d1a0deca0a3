//! A target's slot that JavaScript holds.

use napi::Result;
use napi_derive::napi;
use tidegate::Error;
use tidegate_bindings::{SlotHandle, seconds, status_code};

use crate::bridge::{Kind, Outcome, Row};
use crate::failure::invalid;
use crate::reply::write_failure;

/// A slot of a target, for a call that uses no fetch. Dropping it releases the slot.
#[napi]
pub struct Slot(SlotHandle);

#[napi]
impl Slot {
    /// The base URL of the replica of the slot, if the target is a pool.
    #[napi(getter)]
    pub fn replica(&self) -> Option<String> {
        self.0.with(|slot| slot.replica().map(str::to_owned)).flatten()
    }

    /// Reports that the upstream failed the call. Returns whether the same call may succeed later,
    /// or undefined if the slot was released.
    #[napi]
    pub fn failed(&self, status: Option<u32>, retry_after: Option<f64>) -> Result<Option<bool>> {
        let status = status.map(status_code).transpose().map_err(invalid)?;
        let retry_after = retry_after.map(|after| seconds("retryAfter", after));
        let retry_after = retry_after.transpose().map_err(invalid)?;
        Ok(self.0.with(|slot| slot.failed(status, retry_after)))
    }

    /// Releases the slot. With `well`, the call succeeded unless it was reported as failed.
    /// Idempotent.
    #[napi]
    pub fn close(&self, well: bool) {
        self.0.close(well);
    }
}

impl Outcome for std::result::Result<SlotHandle, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Ok(slot) => {
                row.kind(Kind::Slot)?;
                row.put(0, Slot(slot))
            }
            Err(error) => write_failure(&error, row),
        }
    }
}
