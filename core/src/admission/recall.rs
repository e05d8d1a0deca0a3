//! Calls in flight that may be called back, since they were lent a slot of somebody else's floor.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::schedule::GrantId;

/// Who is told that its slot is wanted back. Empty where the target does not reclaim.
#[derive(Debug)]
pub(super) struct Recalls(Option<Mutex<HashMap<GrantId, Arc<Notify>>>>);

impl Recalls {
    pub(super) fn new(enabled: bool) -> Self {
        Self(enabled.then(Mutex::default))
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// What a call hears of, whose attempt has just been admitted.
    pub(super) fn enlist(&self, id: GrantId) -> Option<Arc<Notify>> {
        let recalls = self.0.as_ref()?;
        Some(recalls.lock().entry(id).or_default().clone())
    }

    /// It is called back; also where it is only about to listen.
    pub(super) fn call_back(&self, id: GrantId) {
        if let Some(recalls) = &self.0 {
            recalls.lock().entry(id).or_default().notify_one();
        }
    }

    /// It is over, or was answered.
    pub(super) fn forget(&self, id: GrantId) {
        if let Some(recalls) = &self.0 {
            recalls.lock().remove(&id);
        }
    }
}
