//! What is noted of one call while it is under way.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::wire::Usage;

use crate::seen::Failure;

/// One call, shared by its worker, the meter and the driver. Times are seconds since the sweep began.
#[derive(Debug)]
pub(super) struct Notes {
    /// Its number in this sweep, and its label at the gate.
    pub(super) id: u64,
    pub(super) step: usize,
    pub(super) cap: usize,
    /// Its place in the mix.
    pub(super) work: usize,
    /// Tokens of its prompt, as estimated, and the most of its answer.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) queued_at: f64,
    story: Mutex<Story>,
}

/// What happens to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    pub(super) attempts: Vec<Tried>,
    /// Whether an exchange of it is open.
    pub(super) open: bool,
    /// The sweep itself ends it: what comes of it then is nothing that the server did.
    pub(super) given_up: bool,
    /// Of the last attempt.
    pub(super) stream: Stream,
}

/// One exchange.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) sent_at: f64,
    pub(super) ended_at: Option<f64>,
    pub(super) position: usize,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<Failure>,
}

/// How an answer came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    pub(super) first_at: Option<f64>,
    pub(super) last_at: Option<f64>,
    pub(super) longest_pause: Option<f64>,
    pub(super) usage: Option<Usage>,
}

impl Notes {
    pub(super) fn new(
        id: u64,
        step: usize,
        cap: usize,
        work: usize,
        input: u64,
        output: u64,
        queued_at: f64,
    ) -> Arc<Self> {
        Arc::new(Self { id, step, cap, work, input, output, queued_at, story: Mutex::default() })
    }

    /// Writes; whether it is its first exchange.
    pub(super) fn sent(&self, sent_at: f64, position: usize) -> bool {
        let mut story = self.story.lock();
        story.attempts.push(Tried { sent_at, ended_at: None, position, status: None, failure: None });
        story.open = true;
        story.stream = Stream::default();
        story.attempts.len() == 1
    }

    pub(super) fn ended(&self, at: f64, status: Option<u16>, failure: Option<Failure>, stream: Stream) {
        let mut story = self.story.lock();
        story.open = false;
        story.stream = stream;
        if let Some(tried) = story.attempts.last_mut() {
            (tried.ended_at, tried.status, tried.failure) = (Some(at), status, failure);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.story.lock().open
    }

    /// Whether anything of it was ever sent.
    pub(super) fn was_sent(&self) -> bool {
        !self.story.lock().attempts.is_empty()
    }

    pub(super) fn give_up(&self) {
        self.story.lock().given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.story.lock().given_up
    }

    pub(super) fn story(&self) -> Story {
        self.story.lock().clone()
    }
}
