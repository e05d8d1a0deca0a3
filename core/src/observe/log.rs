//! The bounded log of calls: the last ones, with their stamps. Holds no prompt, no header, and of URLs only those of replicas, as they were configured.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use super::Outcome;
use crate::call::{Attempt, Call};
use crate::clock;
use tidegate_protocol::Usage;
use tidegate_protocol::prompt::Prompt;

/// How many calls are kept.
pub const KEPT: usize = 1024;

/// One ended call. Times are seconds since `queued_at`, which is seconds since the Unix epoch.
#[derive(Clone, Debug, Serialize)]
pub struct CallRecord {
    /// Tells calls of this process apart.
    pub id: u64,
    /// The caller's own name for it ([`crate::Context::call`]).
    pub label: Option<Arc<str>>,
    /// The target.
    pub target: Arc<str>,
    /// The target that refused it before, where it came to this one as its fallback: that refusal is a record of its own, under the same id.
    pub fallback_from: Option<Arc<str>>,
    /// The tenant.
    pub tenant: Arc<str>,
    /// The lane.
    pub lane: &'static str,
    /// The model, where the request named one.
    pub model: Option<Arc<str>>,
    /// How it ended.
    pub outcome: &'static str,
    /// Seconds since the Unix epoch.
    pub queued_at: f64,
    /// End to end.
    pub duration: f64,
    /// What its input was expected to be when it last came to the door, by all that was learned until then (see [`tidegate_tokens`]), or as it was
    /// counted exactly; `None` where its body was not at hand as JSON.
    pub estimated_input_tokens: Option<u64>,
    /// What its output was expected to be then, of all answers together; `None` where its body was not at hand as JSON.
    pub estimated_output_tokens: Option<u64>,
    /// The most output it asked for, of all answers together.
    pub max_output_tokens: Option<u64>,
    /// What the provider counted, cached input included; `None` where it did not say.
    pub input_tokens: Option<u64>,
    /// What the provider counted, reasoning included.
    pub output_tokens: Option<u64>,
    /// Each try of it.
    pub attempts: Vec<AttemptRecord>,
}

/// One attempt: stamps, in seconds since the call's `queued_at`, and what came of it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct AttemptRecord {
    pub queued_at: f64,
    pub admitted_at: Option<f64>,
    /// Slots of the target held just after it was admitted, its own included.
    pub in_flight: Option<usize>,
    /// The replica that it went to, by its base URL, where its target is a pool.
    pub replica: Option<Arc<str>>,
    pub sent_at: Option<f64>,
    pub first_token_at: Option<f64>,
    pub released_at: Option<f64>,
    pub status: Option<u16>,
    /// How long the call then slept before it queued again: a duration, not a stamp.
    pub backoff: Option<f64>,
}

/// The last calls that ended.
#[derive(Debug, Default)]
pub struct CallLog {
    last: Mutex<VecDeque<CallRecord>>,
    /// Made for the first who follows.
    followed: OnceLock<broadcast::Sender<Arc<CallRecord>>>,
}

impl CallLog {
    /// What is kept, oldest first.
    pub fn records(&self) -> Vec<CallRecord> {
        self.last.lock().iter().cloned().collect()
    }

    /// Every call that ends from now on, for who must not miss one. Who falls more than [`KEPT`] calls behind is told how many it missed
    /// (`RecvError::Lagged`); nobody waits for it.
    pub fn follow(&self) -> broadcast::Receiver<Arc<CallRecord>> {
        self.followed.get_or_init(|| broadcast::Sender::new(KEPT)).subscribe()
    }

    /// The same, one JSON object a line.
    pub fn jsonl(&self) -> String {
        let lines = self.records().into_iter().filter_map(|record| serde_json::to_string(&record).ok());
        lines.map(|line| line + "\n").collect()
    }

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
        let expected = prompt.map(|_| call.expected());
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
            // Nobody may be there any more.
            let _ = followed.send(Arc::new(record.clone()));
        }
        let mut log = self.last.lock();
        if log.len() == KEPT {
            log.pop_front();
        }
        log.push_back(record);
    }
}
