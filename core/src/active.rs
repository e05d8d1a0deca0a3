//! The calls that a gate has under way: how many, so that it can wait for the last one, and which, so that it can say what each waits for.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::call::Call;

/// So many locks, by the call's number: calls that begin and end at the same time do not meet.
const SHARDS: usize = 16;

/// The calls of one gate.
#[derive(Debug, Default)]
pub(crate) struct Active {
    count: watch::Sender<Count>,
    calls: [Mutex<HashMap<u64, Call>>; SHARDS],
}

#[derive(Debug, Default)]
struct Count {
    calls: usize,
    /// Calls that may go on to another target: between the two neither has them.
    between: usize,
}

/// One call under way; counted until dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    active: Arc<Active>,
    id: u64,
}

/// A call that may go on to another target: the gate is not done before that is decided. By itself it counts as no call.
#[derive(Debug)]
pub(crate) struct Between(Arc<Active>);

impl Active {
    /// Counts one more.
    pub(crate) fn enter(self: &Arc<Self>, call: Call) -> Entered {
        let id = call.id();
        self.shard(id).lock().insert(id, call);
        self.count.send_modify(|count| count.calls += 1);
        Entered { active: self.clone(), id }
    }

    /// Holds the end off until it is dropped.
    pub(crate) fn between(self: &Arc<Self>) -> Between {
        self.count.send_modify(|count| count.between += 1);
        Between(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.count.borrow().calls
    }

    /// Resolves when none is under way.
    pub(crate) async fn none(&self) {
        // Fails only where the sender is gone, and that is `self`.
        let _ = self.count.subscribe().wait_for(|count| count.calls + count.between == 0).await;
    }

    /// The call of that number.
    pub(crate) fn get(&self, id: u64) -> Option<Call> {
        self.shard(id).lock().get(&id).cloned()
    }

    /// Every call that is asked for, in no order.
    pub(crate) fn filter(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        let mut found = Vec::new();
        for shard in &self.calls {
            found.extend(shard.lock().values().filter(|call| wanted(call)).cloned());
        }
        found
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Call>> {
        &self.calls[id as usize % SHARDS]
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let call = self.active.shard(self.id).lock().remove(&self.id);
        drop(call);
        self.active.count.send_modify(|count| count.calls = count.calls.saturating_sub(1));
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| count.between = count.between.saturating_sub(1));
    }
}
