//! Cancels attempts in flight whose response has not begun: attempts at a replica that went down,
//! and attempts on borrowed slots.
//!
//! A borrowed slot is reserved for another tenant or lane. The attempt is cancelled when a call of
//! that tenant or lane needs the slot.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::schedule::GrantId;
use tidegate_policy::outcome::Cancellation;

/// The signal by which the gate cancels one attempt in flight.
#[derive(Debug, Default)]
pub(crate) struct CancelSignal {
    cancelled: Notify,
    /// Why the attempt was cancelled. Set before `cancelled` is notified.
    cause: OnceLock<Cancellation>,
}

impl CancelSignal {
    /// Waits until the attempt is cancelled, and returns the cause.
    pub(crate) async fn cancelled(&self) -> Cancellation {
        self.cancelled.notified().await;
        self.cause.get().copied().unwrap_or(Cancellation::Preempted)
    }
}

/// The cancel signals of all attempts of a target that can be cancelled, by attempt. `None` if the
/// target cancels no attempts, because it neither sets `reclaim` nor is a pool.
#[derive(Debug)]
pub(super) struct CancelSignals(Option<Mutex<HashMap<GrantId, Arc<CancelSignal>>>>);

impl CancelSignals {
    pub(super) fn new(enabled: bool) -> Self {
        Self(enabled.then(Mutex::default))
    }

    /// Returns `true` if attempts of the target can be cancelled.
    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the cancel signal of an admitted attempt, and creates it if necessary. `None` if
    /// attempts of the target cannot be cancelled.
    pub(super) fn register(&self, id: GrantId) -> Option<Arc<CancelSignal>> {
        let signals = self.0.as_ref()?;
        Some(signals.lock().entry(id).or_default().clone())
    }

    /// Cancels an attempt: its signal resolves with `cause`. If [`CancelSignals::register`] was not
    /// called for the attempt yet, the signal that it returns later resolves immediately.
    pub(super) fn cancel(&self, id: GrantId, cause: Cancellation) {
        if let Some(signals) = &self.0 {
            let mut signals = signals.lock();
            let signal = signals.entry(id).or_default();
            let _ = signal.cause.set(cause);
            signal.cancelled.notify_one();
        }
    }

    /// Removes the signal of an attempt that has ended, or whose response has begun.
    pub(super) fn remove(&self, id: GrantId) {
        if let Some(signals) = &self.0 {
            signals.lock().remove(&id);
        }
    }
}
