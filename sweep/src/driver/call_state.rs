//! State of one call.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::protocol::Usage;

use crate::observation::AttemptFailure;

/// One call, shared by its task, the metering transport and the driver. Times are in seconds since
/// the sweep began.
#[derive(Debug)]
pub(super) struct CallState {
    /// Identifier in this sweep, and label at the gate.
    pub(super) id: u64,
    pub(super) step: usize,
    pub(super) cap: usize,
    /// Index in the mix.
    pub(super) work: usize,
    /// Estimated prompt tokens.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) queued_at: f64,
    history: Mutex<CallHistory>,
}

/// What has happened to a call.
#[derive(Clone, Debug, Default)]
pub(super) struct CallHistory {
    pub(super) attempts: Vec<AttemptLog>,
    /// Whether an exchange is open.
    pub(super) open: bool,
    /// Whether the sweep cancelled the call, so that its end says nothing about the server.
    pub(super) given_up: bool,
    /// Timing of the last attempt's stream.
    pub(super) stream: StreamTimes,
}

/// One exchange.
#[derive(Clone, Debug)]
pub(super) struct AttemptLog {
    pub(super) sent_at: f64,
    pub(super) ended_at: Option<f64>,
    pub(super) position: usize,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<AttemptFailure>,
}

/// Timing and usage of a streamed answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamTimes {
    pub(super) first_at: Option<f64>,
    pub(super) last_at: Option<f64>,
    pub(super) longest_pause: Option<f64>,
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

    /// Records that a request was sent. Returns `true` if it was the first one.
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
        if let Some(tried) = history.attempts.last_mut() {
            (tried.ended_at, tried.status, tried.failure) = (Some(at), status, failure);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.history.lock().open
    }

    /// Returns `true` if any request of the call was sent.
    pub(super) fn was_sent(&self) -> bool {
        !self.history.lock().attempts.is_empty()
    }

    pub(super) fn mark_given_up(&self) {
        self.history.lock().given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.history.lock().given_up
    }

    pub(super) fn history(&self) -> CallHistory {
        self.history.lock().clone()
    }
}
