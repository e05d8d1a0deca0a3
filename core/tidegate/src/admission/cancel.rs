//! Cancels attempts in flight whose response has not begun: those on borrowed slots that the owner
//! needs, and those at a replica that went down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::schedule::GrantId;
use tidegate_policy::outcome::Cancellation;

/// Signals one attempt in flight that it is cancelled.
#[derive(Debug, Default)]
pub(crate) struct CancelSignal {
    cancelled: Notify,
    is_replica_down: AtomicBool,
}

impl CancelSignal {
    /// Resolves when the attempt is cancelled, with the cause.
    pub(crate) async fn cancelled(&self) -> Cancellation {
        self.cancelled.notified().await;
        let is_replica_down = self.is_replica_down.load(Ordering::Acquire);
        if is_replica_down { Cancellation::ReplicaDown } else { Cancellation::Preempted }
    }
}

/// The signals of all attempts that can be cancelled. Empty if the target neither lends reserved
/// slots nor is a pool.
#[derive(Debug)]
pub(super) struct CancelSignals(Option<Mutex<HashMap<GrantId, Arc<CancelSignal>>>>);

impl CancelSignals {
    pub(super) fn new(enabled: bool) -> Self {
        Self(enabled.then(Mutex::default))
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the signal of an attempt that was admitted.
    pub(super) fn register(&self, id: GrantId) -> Option<Arc<CancelSignal>> {
        let signals = self.0.as_ref()?;
        Some(signals.lock().entry(id).or_default().clone())
    }

    /// Cancels an attempt, even if it registers later.
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

    /// Removes the signal of an attempt that is over or whose response has begun.
    pub(super) fn remove(&self, id: GrantId) {
        if let Some(signals) = &self.0 {
            signals.lock().remove(&id);
        }
    }
}
