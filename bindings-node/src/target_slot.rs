//! A slot of a target (the permission for one call in flight) that JavaScript owns.

use napi::Result;
use napi_derive::napi;
use tidegate::Error;
use tidegate_bindings::{SlotHandle, seconds, status_code};

use crate::bridge::{CompletionKind, Outcome, Row};
use crate::errors::argument_error;
use crate::response::write_failure;

/// A slot of a target, for a call that is not made with the gate's fetch. If the slot is dropped,
/// it is released.
#[napi]
pub struct Slot(SlotHandle);

#[napi]
impl Slot {
    /// The base URL of the replica to call; null if the target is not a pool, or if the slot was
    /// released.
    #[napi(getter)]
    pub fn replica(&self) -> Option<String> {
        self.0.with(|slot| slot.replica().map(str::to_owned)).flatten()
    }

    /// Reports that the upstream failed the call. Returns `true` if the same call may succeed
    /// later, `false` if not, and null if the slot was released.
    ///
    /// `status` is the HTTP status; undefined if the connection failed. `retry_after` is the delay
    /// in seconds that the upstream asked for; undefined if it asked for none.
    #[napi]
    pub fn failed(&self, status: Option<u32>, retry_after: Option<f64>) -> Result<Option<bool>> {
        let status = status.map(status_code).transpose().map_err(argument_error)?;
        let retry_after = retry_after.map(|after| seconds("retryAfter", after));
        let retry_after = retry_after.transpose().map_err(argument_error)?;
        Ok(self.0.with(|slot| slot.failed(status, retry_after)))
    }

    /// Releases the slot. If the result of the call has not been reported before, the call counts
    /// as successful if `succeeded` is `true`, and as cancelled otherwise. Idempotent.
    #[napi]
    pub fn close(&self, succeeded: bool) {
        self.0.close(succeeded);
    }
}

impl Outcome for std::result::Result<SlotHandle, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Ok(slot) => {
                row.kind(CompletionKind::Slot)?;
                row.put(0, Slot(slot))
            }
            Err(error) => write_failure(&error, row),
        }
    }
}
