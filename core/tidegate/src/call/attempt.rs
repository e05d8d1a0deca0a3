//! The record of one attempt: its timestamps, and what was observed of its exchange so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::placement::Placed;
use tidegate_protocol::Usage;

/// Share of the time from the first token to the end for which a reader may leave data unread.
/// Above it, the reader counts as slow.
const MAX_UNREAD_SHARE: f64 = 0.1;
/// Time for which each reader may leave data unread: 10 ms. Readers in a busy process need this
/// long.
const MAX_UNREAD: Duration = Duration::from_millis(10);

/// The record of one attempt of a call.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// When the attempt was queued for a slot. Admission writes this field and the next four.
    pub(crate) queued_at: Instant,
    /// When the attempt got a slot. `None` if the attempt waits for a slot or was rejected.
    pub(crate) admitted_at: Option<Instant>,
    /// Number of slots of the target in use just after the attempt was admitted, including its own.
    /// `None` if the attempt was not admitted.
    pub(crate) in_flight: Option<usize>,
    /// The replica of the slot. `None` before the admission, and if the target is not a pool.
    pub(crate) placed: Option<Placed>,
    /// When the slot was released. `None` if the attempt still holds its slot or never had one.
    pub(crate) released_at: Option<Instant>,
    /// The record of the exchange with the upstream. `None` before the request was sent. Written by
    /// the stream layer.
    pub(crate) exchange: Option<ExchangeRecord>,
    /// How long the call waits before its next attempt. `None` if it does not wait, or if there is
    /// no next attempt. Written by the retry layer.
    pub(crate) backoff: Option<Duration>,
}

impl Attempt {
    /// Creates the record of an attempt that is queued `now`.
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

    /// Returns when the first content, reasoning or tool-call delta arrived. `None` if none has
    /// arrived.
    pub(crate) fn first_token_at(&self) -> Option<Instant> {
        self.exchange.as_ref()?.first_token_at()
    }

    /// Returns what was observed of the response so far, apart from the first token. All fields are
    /// empty, 0 or `false` if the request was not sent.
    pub(crate) fn seen(&self) -> Seen {
        self.exchange.as_ref().map(ExchangeRecord::seen).unwrap_or_default()
    }
}

/// The record of one exchange with the upstream: a request and its response. Clones share one
/// record.
///
/// The stream layer writes the record and attaches it to the response. The layers above read it
/// while the response body is read.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeRecord(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// When the request was handed to the transport.
    sent_at: Instant,
    first_token_at: OnceLock<Instant>,
    /// Number of output deltas (stream events with content) that have arrived so far.
    deltas: AtomicU64,
    seen: Mutex<Seen>,
}

/// What was observed of a response so far, except its first token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The HTTP status. `None` before the response head has arrived.
    pub(crate) status: Option<u16>,
    /// The token usage that the provider reported. `None` if it has reported none yet.
    pub(crate) usage: Option<Usage>,
    /// `true` once the event that ends the provider's stream was received.
    pub(crate) is_complete: bool,
    /// `true` once an error event, or the event of a failed response, was received.
    pub(crate) is_failed: bool,
    /// When the head, or data for which the reader waited, last arrived. Data that has arrived
    /// since may be unread. `None` while the reader waits for data.
    pub(crate) unread_since: Option<Instant>,
    /// The longest time for which data may have been unread before the reader waited for data
    /// again.
    pub(crate) longest_unread: Duration,
}

impl Seen {
    fn longest_unread_until(&self, now: Instant) -> Duration {
        let last = self.unread_since.map(|since| now.saturating_duration_since(since));
        self.longest_unread.max(last.unwrap_or_default())
    }
}

impl ExchangeRecord {
    /// Creates the record of a request that is handed to the transport at `sent_at`.
    pub(crate) fn new(sent_at: Instant) -> Self {
        Self(Arc::new(Inner {
            sent_at,
            first_token_at: OnceLock::new(),
            deltas: AtomicU64::new(0),
            seen: Mutex::default(),
        }))
    }

    /// Returns when the request was handed to the transport.
    pub(crate) fn sent_at(&self) -> Instant {
        self.0.sent_at
    }

    /// Records that the first token arrived `now`. Later calls have no effect.
    pub(crate) fn on_first_token(&self, now: Instant) {
        self.0.first_token_at.get_or_init(|| now);
    }

    /// Returns when the first token arrived. `None` if none has arrived.
    pub(crate) fn first_token_at(&self) -> Option<Instant> {
        self.0.first_token_at.get().copied()
    }

    /// Returns `true` if the first token has arrived.
    pub(crate) fn has_token(&self) -> bool {
        self.first_token_at().is_some()
    }

    /// Records that the response head, or data for which the reader waited, has arrived at `now`.
    pub(crate) fn on_awaited_data(&self, now: Instant) {
        self.update(|seen| seen.unread_since = Some(now));
    }

    /// Records that the reader has read all that has arrived by `now`, and waits for more.
    pub(crate) fn on_all_read(&self, now: Instant) {
        self.update(|seen| (seen.longest_unread, seen.unread_since) = (seen.longest_unread_until(now), None));
    }

    /// Returns `true` if the time from the first token to `now`, the end of the response, is that
    /// of the upstream. Returns `false` if the reader left data unread for so long that the time
    /// depends on the reader.
    pub(crate) fn was_read_promptly(&self, now: Instant) -> bool {
        let took = self.first_token_at().map(|first| now.saturating_duration_since(first));
        self.seen().longest_unread_until(now)
            <= MAX_UNREAD.max(took.unwrap_or_default().mul_f64(MAX_UNREAD_SHARE))
    }

    /// Sets the number of output deltas that have arrived so far.
    pub(crate) fn set_deltas(&self, deltas: u64) {
        self.0.deltas.store(deltas, Ordering::Relaxed);
    }

    /// Returns the number of output deltas that have arrived so far. Each counts as one token until
    /// the provider reports its usage.
    pub(crate) fn deltas(&self) -> u64 {
        self.0.deltas.load(Ordering::Relaxed)
    }

    /// Returns what was observed of the response so far.
    pub(crate) fn seen(&self) -> Seen {
        *self.0.seen.lock()
    }

    /// Changes what was observed of the response by calling `write` under a lock.
    pub(crate) fn update(&self, write: impl FnOnce(&mut Seen)) {
        write(&mut self.0.seen.lock());
    }
}
