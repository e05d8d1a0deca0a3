//! Calls in flight that may be called back: since they were lent a slot of somebody else's floor, or since their replica went down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::schedule::GrantId;
use tidegate_policy::outcome::Cancellation;

/// What a call in flight listens to.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    told: Notify,
    fell: AtomicBool,
}

impl Recall {
    /// Resolves once the call is called back.
    pub(crate) async fn told(&self) -> Cancellation {
        self.told.notified().await;
        if self.fell.load(Ordering::Acquire) { Cancellation::ReplicaDown } else { Cancellation::Reclaimed }
    }
}

/// Who is told. Empty where the target neither reclaims nor is a pool.
#[derive(Debug)]
pub(super) struct Recalls(Option<Mutex<HashMap<GrantId, Arc<Recall>>>>);

impl Recalls {
    pub(super) fn new(enabled: bool) -> Self {
        Self(enabled.then(Mutex::default))
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// What a call hears of, whose attempt has just been admitted.
    pub(super) fn enlist(&self, id: GrantId) -> Option<Arc<Recall>> {
        let recalls = self.0.as_ref()?;
        Some(recalls.lock().entry(id).or_default().clone())
    }

    /// It is called back; also where it is only about to listen.
    pub(super) fn call_back(&self, id: GrantId, cause: Cancellation) {
        if let Some(recalls) = &self.0 {
            let mut recalls = recalls.lock();
            let recall = recalls.entry(id).or_default();
            if cause == Cancellation::ReplicaDown {
                recall.fell.store(true, Ordering::Release);
            }
            recall.told.notify_one();
        }
    }

    /// It is over, or was answered.
    pub(super) fn forget(&self, id: GrantId) {
        if let Some(recalls) = &self.0 {
            recalls.lock().remove(&id);
        }
    }
}
