//! Tracks the calls of a gate that are in progress: how many there are, when the last one has
//! ended, and which call has a given number or label.

use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::watch;

use crate::call::Call;

/// Number of shards, each with its own lock. The number of a call selects its shard, so concurrent
/// calls rarely contend for a lock.
const SHARDS: usize = 16;

/// The calls of one gate that are in progress.
#[derive(Debug, Default)]
pub(crate) struct Active {
    count: watch::Sender<Count>,
    calls: [Mutex<Slab<Call>>; SHARDS],
}

#[derive(Debug, Default)]
struct Count {
    calls: usize,
    /// Number of calls that may still be sent to a fallback target. A call in progress that may
    /// still fall back is counted in both `calls` and this field.
    in_fallback: usize,
}

impl Count {
    fn total(&self) -> usize {
        self.calls + self.in_fallback
    }
}

/// A guard that counts one call as in progress until the guard is dropped.
#[derive(Debug)]
pub(crate) struct ActiveCall {
    active: Arc<Active>,
    id: u64,
    /// Index of the call in its shard.
    index: usize,
}

/// The guard of a call that may still be sent to a fallback target. [`Active::wait_until_idle`]
/// resolves only after this guard is dropped.
#[derive(Debug)]
pub(crate) struct FallbackInProgress(Arc<Active>);

impl Active {
    /// Counts a call as in progress until the returned guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, call: Call) -> ActiveCall {
        let id = call.id();
        let index = self.shard(id).lock().insert(call);
        self.update_count(|count| count.calls += 1);
        ActiveCall { active: self.clone(), id, index }
    }

    /// Delays [`Active::wait_until_idle`] until the returned guard is dropped, because a call may
    /// still be sent to a fallback target. [`Active::count`] does not change.
    pub(crate) fn in_fallback(self: &Arc<Self>) -> FallbackInProgress {
        self.update_count(|count| count.in_fallback += 1);
        FallbackInProgress(self.clone())
    }

    /// Changes the count, and wakes those that wait for [`Active::wait_until_idle`] if nothing is
    /// left.
    fn update_count(&self, change: impl FnOnce(&mut Count)) {
        self.count.send_if_modified(|count| {
            change(count);
            count.total() == 0 && self.count.receiver_count() > 0
        });
    }

    /// Returns the number of calls in progress.
    pub(crate) fn count(&self) -> usize {
        self.count.borrow().calls
    }

    /// Resolves when no call is in progress and no call may still be sent to a fallback target.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub(crate) async fn wait_until_idle(&self) {
        // Fails only if the sender is dropped, and `self` owns it.
        let _ = self.count.subscribe().wait_for(|count| count.total() == 0).await;
    }

    /// Returns the call with the number `id`. `None` if it is not in progress.
    pub(crate) fn get(&self, id: u64) -> Option<Call> {
        self.shard(id).lock().iter().map(|(_, call)| call).find(|call| call.id() == id).cloned()
    }

    /// Returns the calls in progress for which `wanted` returns `true`, in no particular order.
    pub(crate) fn filter(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        let mut found = Vec::new();
        for shard in &self.calls {
            found.extend(shard.lock().iter().map(|(_, call)| call).filter(|call| wanted(call)).cloned());
        }
        found
    }

    /// Returns the shard that stores the call with the number `id` while the call is in progress.
    fn shard(&self, id: u64) -> &Mutex<Slab<Call>> {
        &self.calls[id as usize % SHARDS]
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        let call = self.active.shard(self.id).lock().remove(self.index);
        drop(call);
        self.active.update_count(|count| count.calls -= 1);
    }
}

impl Drop for FallbackInProgress {
    fn drop(&mut self) {
        self.0.update_count(|count| count.in_fallback -= 1);
    }
}
