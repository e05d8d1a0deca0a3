//! The record of one attempt: its timestamps, and what its exchange has shown so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::placement::Placed;
use tidegate_protocol::Usage;

/// One attempt of a call.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// When the attempt was queued. Admission writes this field and the next four.
    pub(crate) queued_at: Instant,
    /// When the attempt was admitted.
    pub(crate) admitted_at: Option<Instant>,
    /// Slots of the target in use just after the admission, the attempt's own included.
    pub(crate) in_flight: Option<usize>,
    /// The replica that the slot is at, if the target is a pool.
    pub(crate) placed: Option<Placed>,
    /// When the slot was released.
    pub(crate) released_at: Option<Instant>,
    /// The exchange with the upstream, once it was sent. Written by the stream layer.
    pub(crate) exchange: Option<ExchangeRecord>,
    /// How long the call sleeps before it queues again, if the attempt failed. Written by retry.
    pub(crate) backoff: Option<Duration>,
}

impl Attempt {
    /// Creates the record of an attempt that is queued now.
    pub(super) fn queued(now: Instant) -> Self {
        Self {
            queued_at: now,
            admitted_at: None,
            in_flight: None,
            placed: None,
            released_at: None,
            exchange: None,
            backoff: None,
        }
    }

    /// Returns when the request was handed to the transport. `None` if it was not sent.
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.exchange.as_ref().map(ExchangeRecord::sent_at)
    }

    /// Returns when the first content, reasoning or tool-call delta arrived. `None` if none has.
    pub(crate) fn first_token_at(&self) -> Option<Instant> {
        self.exchange.as_ref()?.first_token_at()
    }

    /// Returns what the exchange has shown so far.
    pub(crate) fn seen(&self) -> Seen {
        self.exchange.as_ref().map(ExchangeRecord::seen).unwrap_or_default()
    }
}

/// The record of one exchange with the upstream. Clones share it.
///
/// The stream layer writes it and attaches it to the response. The layers above read it while the
/// body is read.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeRecord(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sent_at: Instant,
    first_token_at: OnceLock<Instant>,
    tokens: AtomicU64,
    seen: Mutex<Seen>,
}

/// What an exchange has shown so far, except its first token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The status of the response.
    pub(crate) status: Option<u16>,
    /// The tokens that the provider has counted.
    pub(crate) usage: Option<Usage>,
    /// Number of output deltas of the whole body. 0 until the body has ended.
    pub(crate) deltas: u64,
    /// Whether the provider's terminal event was seen.
    pub(crate) is_complete: bool,
    /// Whether an error event was seen.
    pub(crate) is_failed: bool,
}

impl ExchangeRecord {
    /// Creates the record of a request that is handed to the transport at `sent_at`.
    pub(crate) fn new(sent_at: Instant) -> Self {
        Self(Arc::new(Inner {
            sent_at,
            first_token_at: OnceLock::new(),
            tokens: AtomicU64::new(0),
            seen: Mutex::default(),
        }))
    }

    /// Returns when the request was handed to the transport.
    pub(crate) fn sent_at(&self) -> Instant {
        self.0.sent_at
    }

    /// Records the arrival of the first token. Only the first call has an effect.
    pub(crate) fn on_first_token(&self, now: Instant) {
        self.0.first_token_at.get_or_init(|| now);
    }

    /// Returns when the first token arrived.
    pub(crate) fn first_token_at(&self) -> Option<Instant> {
        self.0.first_token_at.get().copied()
    }

    /// Returns `true` if the first token has arrived.
    pub(crate) fn has_token(&self) -> bool {
        self.first_token_at().is_some()
    }

    /// Sets the number of output tokens that have arrived so far, counted in deltas.
    pub(crate) fn set_tokens(&self, tokens: u64) {
        self.0.tokens.store(tokens, Ordering::Relaxed);
    }

    /// Returns the number of output tokens that have arrived so far, counted in deltas.
    pub(crate) fn tokens(&self) -> u64 {
        self.0.tokens.load(Ordering::Relaxed)
    }

    /// Returns what the exchange has shown so far.
    pub(crate) fn seen(&self) -> Seen {
        *self.0.seen.lock()
    }

    /// Updates what the exchange has shown.
    pub(crate) fn update(&self, write: impl FnOnce(&mut Seen)) {
        write(&mut self.0.seen.lock());
    }
}
