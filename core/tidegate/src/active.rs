//! The calls in progress of a gate: their number, so that the gate can wait for the last one, and
//! the calls themselves, so that the gate can explain them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::call::Call;

/// Number of locks, selected by the number of the call, so that concurrent calls rarely contend.
const SHARDS: usize = 16;

/// The calls in progress of one gate.
#[derive(Debug, Default)]
pub(crate) struct Active {
    count: watch::Sender<Count>,
    calls: [Mutex<HashMap<u64, Call>>; SHARDS],
}

#[derive(Debug, Default)]
struct Count {
    calls: usize,
    /// Rejected calls that may continue at a fallback target. They are not counted in `calls`
    /// meanwhile.
    in_fallback: usize,
}

/// Keeps one call counted as in progress until dropped.
#[derive(Debug)]
pub(crate) struct ActiveCall {
    active: Arc<Active>,
    id: u64,
}

/// Keeps [`Active::none`] from resolving until dropped, while a rejected call may continue at a
/// fallback target.
#[derive(Debug)]
pub(crate) struct FallbackInProgress(Arc<Active>);

impl Active {
    /// Adds a call, until the returned guard is dropped.
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

    /// Returns the call with this number, if it is in progress.
    pub(crate) fn get(&self, id: u64) -> Option<Call> {
        self.shard(id).lock().get(&id).cloned()
    }

    /// Returns the calls for which `wanted` returns `true`, in no particular order.
    pub(crate) fn filter(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        let mut found = Vec::new();
        for shard in &self.calls {
            found.extend(shard.lock().values().filter(|call| wanted(call)).cloned());
        }
        found
    }

    /// Returns the part of the calls that contains the call with this number.
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
