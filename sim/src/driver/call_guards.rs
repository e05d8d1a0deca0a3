//! Guards that record the end of a call, even if the caller drops its future or body.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::Shared;
use super::state::SequenceEvent;
use super::stats::AttemptEnd;
use crate::engine::SequenceId;

/// An attempt in flight. If the guard is dropped before [`AttemptGuard::end`] was called, the
/// attempt ends as [`AttemptEnd::Aborted`].
pub(super) struct AttemptGuard {
    shared: Arc<Shared>,
    number: u64,
    tenant: String,
    status: Option<u16>,
    sent: u32,
    ended: bool,
}

impl AttemptGuard {
    pub(super) fn new(shared: Arc<Shared>, number: u64, tenant: String) -> Self {
        Self { shared, number, tenant, status: None, sent: 0, ended: false }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Sets the HTTP status that the statistics show for the attempt.
    pub(super) fn set_status(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Counts one more token that was sent to the caller.
    pub(super) fn token_sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    pub(super) fn end(&mut self, outcome: AttemptEnd) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        state.faults.settle(now, self.sent);
        if let Some(attempt) = state.stats.attempt(self.number) {
            attempt.output_tokens = self.sent;
        }
        state.stats.end(now, self.number, &self.tenant, self.status, outcome);
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        self.end(AttemptEnd::Aborted);
    }
}

/// A call whose sequence is in an engine. Dropping the guard aborts the sequence at once, unless
/// the sequence has ended.
pub(super) struct CallGuard {
    // Declared before the attempt, so that the engine is free when the attempt ends.
    sequence: SequenceGuard,
    pub(super) attempt: AttemptGuard,
}

struct SequenceGuard {
    shared: Arc<Shared>,
    id: SequenceId,
    signals: mpsc::UnboundedReceiver<SequenceEvent>,
}

impl CallGuard {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: SequenceId,
        signals: mpsc::UnboundedReceiver<SequenceEvent>,
        attempt: AttemptGuard,
    ) -> Self {
        Self { sequence: SequenceGuard { shared, id, signals }, attempt }
    }

    /// Polls for the next event of the sequence. Returns `Ready(None)` if an outage killed the
    /// server.
    pub(super) fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Option<SequenceEvent>> {
        self.sequence.signals.poll_recv(cx)
    }

    pub(super) async fn signal(&mut self) -> Option<SequenceEvent> {
        self.sequence.signals.recv().await
    }
}

impl Drop for SequenceGuard {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        // Advance first: tokens of the steps that have ended by now were generated.
        state.advance(now);
        state.abort(self.id);
    }
}
