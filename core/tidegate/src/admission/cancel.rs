//! Cancels attempts in flight whose response has not begun: attempts on borrowed slots that the
//! owner needs, and attempts at a replica that went down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::schedule::GrantId;
use tidegate_policy::outcome::Cancellation;

/// The signal by which the gate cancels one attempt in flight.
#[derive(Debug, Default)]
pub(crate) struct CancelSignal {
    cancelled: Notify,
    /// Whether the cause is that the replica went down. Otherwise the slot was reclaimed.
    is_replica_down: AtomicBool,
}

impl CancelSignal {
    /// Resolves when the attempt is cancelled. Returns the cause.
    pub(crate) async fn cancelled(&self) -> Cancellation {
        self.cancelled.notified().await;
        let is_replica_down = self.is_replica_down.load(Ordering::Acquire);
        if is_replica_down { Cancellation::ReplicaDown } else { Cancellation::Preempted }
    }
}

/// The signals of all attempts of a target that can be cancelled. `None` if the target neither
/// lends reserved slots nor is a pool, so that it cancels no attempt.
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

    /// Returns the signal of an admitted attempt. `None` if attempts of the target cannot be
    /// cancelled.
    pub(super) fn register(&self, id: GrantId) -> Option<Arc<CancelSignal>> {
        let signals = self.0.as_ref()?;
        Some(signals.lock().entry(id).or_default().clone())
    }

    /// Cancels an attempt. If the attempt registers later, its signal resolves at once.
    pub(super) fn cancel(&self, id: GrantId, cause: Cancellation) {
        if let Some(signals) = &self.0 {
            let mut signals = signals.lock();
            let signal = signals.entry(id).or_default();
            if cause == Cancellation::ReplicaDown {
                signal.is_replica_down.store(true, Ordering::Release);
            }
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
