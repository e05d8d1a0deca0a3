//! The call log: the last [`LOGGED_CALLS`] calls that ended, with the timestamps of their attempts.
//!
//! The log contains no prompts and no headers. Its only URLs are the configured URLs of replicas.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::call::{Attempt, Call};
use crate::clock;
use crate::metrics::Outcome;
use tidegate_protocol::Usage;
use tidegate_protocol::prompt::Prompt;

/// Maximum number of calls in the call log: 1,024. Further calls replace the oldest.
pub const LOGGED_CALLS: usize = 1024;

/// A call that has ended, as in the call log.
#[derive(Clone, Debug, Serialize)]
pub struct CallRecord {
    /// Number of the call, unique in this process. A call keeps its number at a fallback target.
    pub id: u64,
    /// The label that the caller gave the call ([`crate::Context::call`]). `None` if it has none.
    pub label: Option<Arc<str>>,
    /// Name of the target.
    pub target: Arc<str>,
    /// Name of the target that rejected the call before the call came to this target as a fallback.
    /// `None` if this is the call's first target. The rejection has its own record with the same
    /// `id`.
    pub fallback_from: Option<Arc<str>>,
    /// Name of the tenant.
    pub tenant: Arc<str>,
    /// Name of the lane: `interactive`, `standard` or `batch`.
    pub lane: &'static str,
    /// Name of the model. `None` if the request names none.
    pub model: Option<Arc<str>>,
    /// How the call ended: `completed`, `failed`, `refused`, `cancelled`, `truncated`, `timed_out`
    /// or `broken`.
    pub outcome: &'static str,
    /// When the call was made, in seconds since the Unix epoch.
    pub queued_at: f64,
    /// Time from `queued_at` until the end of the call, in seconds.
    pub duration: f64,
    /// Input tokens expected when the last attempt asked for a slot: the learned estimate (see
    /// [`tidegate_tokens`]) or the exact count. `None` if the request body was not readable as
    /// JSON.
    pub estimated_input_tokens: Option<u64>,
    /// Output tokens expected when the last attempt asked for a slot, summed over all choices of
    /// the response. `None` if the request body was not readable as JSON.
    pub estimated_output_tokens: Option<u64>,
    /// Maximum number of output tokens that the request allows, summed over all choices. `None` if
    /// the request sets no limit.
    pub max_output_tokens: Option<u64>,
    /// Input tokens that the provider reported, cached input included. `None` if not reported.
    pub input_tokens: Option<u64>,
    /// Output tokens that the provider reported, reasoning included. `None` if not reported.
    pub output_tokens: Option<u64>,
    /// The attempts, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// One attempt of a call. Timestamps are in seconds since the `queued_at` of its [`CallRecord`].
/// They are `None` if the event did not happen.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct AttemptRecord {
    /// When the attempt was queued for a slot, in seconds since the call was made.
    pub queued_at: f64,
    /// When the attempt got a slot, in seconds since the call was made. `None` if it got none.
    pub admitted_at: Option<f64>,
    /// Number of slots of the target in use just after the attempt was admitted, its own included.
    /// `None` if it was not admitted.
    pub in_flight: Option<usize>,
    /// Base URL of the replica whose slot the attempt got. `None` if the target is not a pool, or
    /// if the attempt was not admitted.
    pub replica: Option<Arc<str>>,
    /// When the request was handed to the transport, in seconds since the call was made. `None` if
    /// it was not.
    pub sent_at: Option<f64>,
    /// When the first token of the response arrived, in seconds since the call was made. `None` if
    /// none arrived.
    pub first_token_at: Option<f64>,
    /// When the slot was released, in seconds since the call was made. `None` if it was not
    /// released.
    pub released_at: Option<f64>,
    /// HTTP status of the response. `None` if there was no response.
    pub status: Option<u16>,
    /// Duration of the backoff after the attempt, in seconds. `None` if no retry with a backoff
    /// followed.
    pub backoff: Option<f64>,
}

/// The log of the last [`LOGGED_CALLS`] calls that ended. [`CallLog::follow`] also delivers each
/// call that ends from then on.
#[derive(Debug, Default)]
pub struct CallLog {
    last: Mutex<VecDeque<CallRecord>>,
    /// The sending end of the channel of [`CallLog::follow`], created when that function is first
    /// called.
    followed: OnceLock<broadcast::Sender<Arc<CallRecord>>>,
}

impl CallLog {
    /// Returns the logged calls, oldest first.
    pub fn records(&self) -> Vec<CallRecord> {
        self.last.lock().iter().cloned().collect()
    }

    /// Returns a channel that receives each call that ends from now on.
    ///
    /// A receiver that is more than [`LOGGED_CALLS`] calls behind misses the oldest and gets
    /// `RecvError::Lagged` with their number. Receivers never slow down calls.
    pub fn follow(&self) -> broadcast::Receiver<Arc<CallRecord>> {
        self.followed.get_or_init(|| broadcast::Sender::new(LOGGED_CALLS)).subscribe()
    }

    /// Returns the logged calls as JSON Lines, oldest first: one [`CallRecord`] object per line.
    pub fn jsonl(&self) -> String {
        let lines = self.records().into_iter().filter_map(|record| serde_json::to_string(&record).ok());
        lines.map(|line| line + "\n").collect()
    }

    /// Adds the record of a call that ended at `now`. `usage` is the token usage that the provider
    /// reported, or `None` if it reported none.
    pub(super) fn push(
        &self,
        call: &Call,
        outcome: Outcome,
        attempts: &[Attempt],
        usage: Option<Usage>,
        now: Instant,
    ) {
        let start = call.queued_at();
        let since = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
        let wall =
            clock::wall().checked_sub(now.saturating_duration_since(start)).unwrap_or(SystemTime::UNIX_EPOCH);
        let prompt = call.facts().prompt.as_ref();
        let expected = prompt.map(|_| call.expected_demand());
        let record = CallRecord {
            id: call.id(),
            label: call.label().cloned(),
            target: call.target().name().clone(),
            fallback_from: call.refused_by().cloned(),
            tenant: call.tenant().clone(),
            lane: call.lane().as_str(),
            model: call.facts().model.clone(),
            outcome: outcome.as_str(),
            queued_at: wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            duration: since(now),
            estimated_input_tokens: expected.map(|demand| demand.input),
            estimated_output_tokens: expected.map(|demand| demand.output),
            max_output_tokens: prompt.and_then(Prompt::max_output),
            input_tokens: usage.map(|usage| usage.input),
            output_tokens: usage.map(|usage| usage.output),
            attempts: attempts
                .iter()
                .map(|attempt| AttemptRecord {
                    queued_at: since(attempt.queued_at),
                    admitted_at: attempt.admitted_at.map(since),
                    in_flight: attempt.in_flight,
                    replica: attempt.placed.as_ref().map(|placed| placed.url.clone()),
                    sent_at: attempt.sent_at().map(since),
                    first_token_at: attempt.first_token_at().map(since),
                    released_at: attempt.released_at.map(since),
                    status: attempt.seen().status,
                    backoff: attempt.backoff.map(|sleep| sleep.as_secs_f64()),
                })
                .collect(),
        };
        if let Some(followed) = self.followed.get().filter(|followed| followed.receiver_count() > 0) {
            // Fails if the last receiver was dropped meanwhile.
            let _ = followed.send(Arc::new(record.clone()));
        }
        let mut log = self.last.lock();
        if log.len() == LOGGED_CALLS {
            log.pop_front();
        }
        log.push_back(record);
    }
}
