//! A handle for a slot of a target (the permission for one call in flight) that a program in the
//! host language owns.

use parking_lot::Mutex;
use tidegate::{Context, Error, Gate, Slot};

use crate::runtime_bound::RuntimeBound;

/// A slot of a target. Dropping the handle releases the slot.
pub struct SlotHandle(Mutex<Option<RuntimeBound<Slot>>>);

impl SlotHandle {
    /// Waits for a slot of the named target, and returns its handle.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request for a slot from the queue.
    ///
    /// # Errors
    ///
    /// If the target does not exist, or if the gate rejects the call.
    pub async fn acquire(gate: Gate, target: String, context: Context) -> Result<Self, Error> {
        let slot = gate.acquire_slot(&target, &context).await?;
        Ok(Self(Mutex::new(Some(RuntimeBound::in_current(slot)))))
    }

    /// Calls `f` with the slot, inside the runtime of the slot, and returns the result of `f`.
    /// Returns `None` if the slot was released or belongs to the parent of this forked process.
    pub fn with<T>(&self, f: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let mut slot = self.0.lock();
        let bound = slot.as_mut()?;
        // A reported failure can start a timer.
        let runtime = bound.runtime().clone();
        let _context = runtime.enter();
        bound.get_mut().map(f)
    }

    /// Releases the slot. If the program has not reported the result of its call before, the call
    /// counts as successful if `succeeded` is `true`, and as cancelled otherwise. Idempotent.
    pub fn close(&self, succeeded: bool) {
        let slot = self.0.lock().take();
        if let Some(mut bound) = slot {
            let runtime = bound.runtime().clone();
            let _context = runtime.enter();
            if let Some(slot) = bound.get_mut().filter(|_| succeeded) {
                slot.succeeded();
            }
        }
    }
}
