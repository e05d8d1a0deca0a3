//! The state of one call: its attempts, and the times of its response stream.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::protocol::Usage;

use crate::observation::AttemptFailure;

/// A call, shared by its task, the metering transport and the driver. Times are in seconds since
/// the sweep began.
#[derive(Debug)]
pub(super) struct CallState {
    /// Identifier of the call in this sweep, which is also its label at the gate.
    pub(super) id: u64,
    pub(super) step: usize,
    pub(super) cap: usize,
    /// Index of the call's request in the mix.
    pub(super) work: usize,
    /// Estimated number of prompt tokens of the call.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) queued_at: f64,
    history: Mutex<CallHistory>,
}

/// The attempts of a call so far, the response stream of the last attempt, and whether the sweep
/// cancelled the call.
#[derive(Clone, Debug, Default)]
pub(super) struct CallHistory {
    pub(super) attempts: Vec<AttemptLog>,
    /// Whether a request of the call was sent and its exchange with the server has not ended.
    pub(super) open: bool,
    /// Whether the sweep cancelled the call. Such a call is not an observation of the server.
    pub(super) cancelled_by_sweep: bool,
    /// Times and usage of the last attempt's stream.
    pub(super) stream: StreamTimes,
}

/// One attempt of a call.
#[derive(Clone, Debug)]
pub(super) struct AttemptLog {
    pub(super) sent_at: f64,
    pub(super) ended_at: Option<f64>,
    pub(super) position: usize,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<AttemptFailure>,
}

/// Times and number of the deltas in a response stream, and the usage that it reports. Each
/// `Option` is `None` until its value is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamTimes {
    pub(super) first_at: Option<f64>,
    pub(super) last_at: Option<f64>,
    pub(super) longest_pause: Option<f64>,
    /// Number of output deltas so far. One delta is one token or a few.
    pub(super) deltas: u64,
    pub(super) usage: Option<Usage>,
}

impl CallState {
    pub(super) fn new(
        id: u64,
        step: usize,
        cap: usize,
        work: usize,
        input: u64,
        output: u64,
        queued_at: f64,
    ) -> Arc<Self> {
        Arc::new(Self { id, step, cap, work, input, output, queued_at, history: Mutex::default() })
    }

    /// Records a new attempt, which was sent at `sent_at`, in seconds since the sweep began.
    /// `position` is the number of open exchanges just after that, including this one. Returns
    /// `true` if it is the call's first attempt.
    pub(super) fn sent(&self, sent_at: f64, position: usize) -> bool {
        let mut history = self.history.lock();
        history.attempts.push(AttemptLog { sent_at, ended_at: None, position, status: None, failure: None });
        history.open = true;
        history.stream = StreamTimes::default();
        history.attempts.len() == 1
    }

    pub(super) fn ended(
        &self,
        at: f64,
        status: Option<u16>,
        failure: Option<AttemptFailure>,
        stream: StreamTimes,
    ) {
        let mut history = self.history.lock();
        history.open = false;
        history.stream = stream;
        if let Some(attempt) = history.attempts.last_mut() {
            (attempt.ended_at, attempt.status, attempt.failure) = (Some(at), status, failure);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.history.lock().open
    }

    /// Returns `true` if at least one request of the call was sent.
    pub(super) fn was_sent(&self) -> bool {
        !self.history.lock().attempts.is_empty()
    }

    pub(super) fn mark_cancelled(&self) {
        self.history.lock().cancelled_by_sweep = true;
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.history.lock().cancelled_by_sweep
    }

    pub(super) fn history(&self) -> CallHistory {
        self.history.lock().clone()
    }
}
