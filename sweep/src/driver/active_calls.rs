//! The calls of a sweep that have not ended.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;

use tidegate::CallRecord;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::{AbortHandle, JoinSet};

use super::call_state::CallState;

/// The calls that have not ended. Dropping the value aborts them all.
#[derive(Default)]
pub(super) struct ActiveCalls {
    /// Ordered by identifier, so that sweeps are deterministic.
    calls: BTreeMap<u64, (Arc<CallState>, AbortHandle)>,
    tasks: JoinSet<()>,
    /// The gate's records of calls that have ended.
    records: HashMap<u64, Arc<CallRecord>>,
    next: u64,
    all_cancelled: bool,
}

impl ActiveCalls {
    pub(super) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn begin(&mut self, call: Arc<CallState>, future: impl Future<Output = ()> + Send + 'static) {
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

    /// Returns the number of calls of which no request was sent.
    pub(super) fn unsent(&self) -> usize {
        self.calls.values().filter(|(call, _)| !call.was_sent()).count()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.calls.values().any(|(call, _)| !call.was_sent())
    }

    /// Cancels the calls that match. They end when their tasks report it.
    pub(super) fn cancel(&mut self, which: impl Fn(&CallState) -> bool) {
        let mut all = true;
        for (call, task) in self.calls.values() {
            if which(call) {
                call.mark_given_up();
                task.abort();
            }
            all &= call.is_given_up();
        }
        self.all_cancelled = all;
    }

    /// Returns `true` if all calls are being cancelled.
    pub(super) fn is_ending(&self) -> bool {
        self.all_cancelled
    }

    /// Reads the records that the gate has written since the last call.
    pub(super) fn learn(&mut self, records: &mut broadcast::Receiver<Arc<CallRecord>>) {
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

    /// Removes an ended call, and returns its state and record.
    pub(super) fn over(&mut self, id: u64) -> Option<(Arc<CallState>, Option<Arc<CallRecord>>)> {
        let record = self.records.remove(&id);
        self.calls.remove(&id).map(|(call, _)| (call, record))
    }

    /// Aborts all tasks and waits for them.
    pub(super) async fn join(&mut self) {
        self.tasks.shutdown().await;
    }
}
