//! The calls of a gate that are in progress: their number, so that the gate can wait for the last
//! one to end, and the calls themselves, so that the gate can explain them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::call::Call;

/// Number of locks. The number of a call selects its lock, so concurrent calls rarely contend.
const SHARDS: usize = 16;

/// The calls of one gate that are in progress.
#[derive(Debug, Default)]
pub(crate) struct Active {
    count: watch::Sender<Count>,
    calls: [Mutex<HashMap<u64, Call>>; SHARDS],
}

#[derive(Debug, Default)]
struct Count {
    calls: usize,
    /// Number of calls that may still be sent to a fallback target. While such a call is in
    /// progress at a target, `calls` counts it too.
    in_fallback: usize,
}

/// Counts one call as in progress until dropped.
#[derive(Debug)]
pub(crate) struct ActiveCall {
    active: Arc<Active>,
    id: u64,
}

/// Keeps [`Active::none`] from resolving until dropped, while a call may be sent to a fallback
/// target.
#[derive(Debug)]
pub(crate) struct FallbackInProgress(Arc<Active>);

impl Active {
    /// Counts a call as in progress until the returned guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, call: Call) -> ActiveCall {
        let id = call.id();
        self.shard(id).lock().insert(id, call);
        self.count.send_modify(|count| count.calls += 1);
        ActiveCall { active: self.clone(), id }
    }

    /// Keeps [`Active::none`] from resolving until the returned guard is dropped. Does not count as
    /// a call.
    pub(crate) fn in_fallback(self: &Arc<Self>) -> FallbackInProgress {
        self.count.send_modify(|count| count.in_fallback += 1);
        FallbackInProgress(self.clone())
    }

    /// Returns the number of calls in progress.
    pub(crate) fn count(&self) -> usize {
        self.count.borrow().calls
    }

    /// Resolves when no call is in progress.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub(crate) async fn none(&self) {
        // Fails only if the sender is dropped, and `self` owns it.
        let _ = self.count.subscribe().wait_for(|count| count.calls + count.in_fallback == 0).await;
    }

    /// Returns the call with the number `id`. `None` if it is not in progress.
    pub(crate) fn get(&self, id: u64) -> Option<Call> {
        self.shard(id).lock().get(&id).cloned()
    }

    /// Returns the calls in progress for which `wanted` returns `true`, in no particular order.
    pub(crate) fn filter(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        let mut found = Vec::new();
        for shard in &self.calls {
            found.extend(shard.lock().values().filter(|call| wanted(call)).cloned());
        }
        found
    }

    /// Returns the part of the calls that contains the call with the number `id`.
    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Call>> {
        &self.calls[id as usize % SHARDS]
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        let call = self.active.shard(self.id).lock().remove(&self.id);
        drop(call);
        self.active.count.send_modify(|count| count.calls = count.calls.saturating_sub(1));
    }
}

impl Drop for FallbackInProgress {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| count.in_fallback = count.in_fallback.saturating_sub(1));
    }
}
