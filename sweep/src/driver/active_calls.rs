//! A collection of the calls that have started and not ended, with their tasks.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;

use tidegate::CallRecord;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::{AbortHandle, JoinSet};

use super::call_state::CallState;

/// Calls that have started and not ended. Dropping the value aborts their tasks.
#[derive(Default)]
pub(super) struct ActiveCalls {
    /// Calls by identifier. Ordered, because the order of cancellation must be deterministic.
    calls: BTreeMap<u64, (Arc<CallState>, AbortHandle)>,
    tasks: JoinSet<()>,
    /// Records that the gate has written for ended calls, until [`ActiveCalls::remove`] takes them.
    records: HashMap<u64, Arc<CallRecord>>,
    next: u64,
    all_cancelled: bool,
}

impl ActiveCalls {
    pub(super) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn start(&mut self, call: Arc<CallState>, future: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let task = self.tasks.spawn(future);
        self.calls.insert(call.id, (call, task));
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the number of active calls that have not sent a request yet.
    pub(super) fn unsent(&self) -> usize {
        self.calls.values().filter(|(call, _)| !call.was_sent()).count()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.calls.values().any(|(call, _)| !call.was_sent())
    }

    /// Marks the calls that satisfy `which` as cancelled, and aborts their tasks. A call remains in
    /// this collection until its task has reported its end.
    pub(super) fn cancel(&mut self, which: impl Fn(&CallState) -> bool) {
        let mut all = true;
        for (call, task) in self.calls.values() {
            if which(call) {
                call.mark_cancelled();
                task.abort();
            }
            all &= call.is_cancelled();
        }
        self.all_cancelled = all;
    }

    /// Returns `true` if, after the most recent [`ActiveCalls::cancel`], every active call was
    /// marked as cancelled. Calls that were started later are not considered.
    pub(super) fn are_all_cancelled(&self) -> bool {
        self.all_cancelled
    }

    /// Moves all available records of ended calls from `records` into this collection.
    pub(super) fn read_records(&mut self, records: &mut broadcast::Receiver<Arc<CallRecord>>) {
        loop {
            match records.try_recv() {
                Ok(record) => {
                    if let Some(id) = record.label.as_deref().and_then(|label| label.parse().ok()) {
                        self.records.insert(id, record);
                    }
                }
                // A missed record is replaced by the call's own state.
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// Removes the call with identifier `id`, and returns its state and the gate's record of it.
    /// The record is `None` if it was missed. Returns `None` instead of the pair if no such call is
    /// active.
    pub(super) fn remove(&mut self, id: u64) -> Option<(Arc<CallState>, Option<Arc<CallRecord>>)> {
        let record = self.records.remove(&id);
        self.calls.remove(&id).map(|(call, _)| (call, record))
    }

    /// Aborts all tasks, and waits until they have ended.
    pub(super) async fn join(&mut self) {
        self.tasks.shutdown().await;
    }
}
