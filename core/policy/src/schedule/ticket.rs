//! The values exchanged between a call and the scheduler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Reason, Rule, Why};
use crate::Lane;
use crate::fairness::Tag;
use crate::kv::Forecast;
use crate::placement::Wants;
use tidegate_protocol::Usage;
use tidegate_tokens::Demand;

/// A request for admission: what the scheduler needs to know about a call.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The fairness key.
    pub tenant: Arc<str>,
    /// The priority class.
    pub lane: Lane,
    /// When the call was first queued. Retries keep this time.
    pub queued_at: Instant,
    /// When the call stops waiting in any case.
    pub deadline: Instant,
    /// The remaining wait budget, which runs only while the target is open.
    pub wait: Option<Duration>,
    /// Whether an attempt of the call at this target failed in a way that may be caused by the call
    /// itself.
    pub has_failed: bool,
    /// What the call is expected to take of budgets and memory.
    pub demand: Demand,
    /// The expected length of the answer, if memory is accounted for. The default follows `demand`.
    pub forecast: Forecast,
    /// Whether the answer is streamed, so that it has a first token before its end.
    pub streams: bool,
    /// The cost in fair queueing: tokens, tokens times seconds of memory, or 1 per call. Positive
    /// and finite.
    pub cost: f64,
    /// What the call asks of its replica, if the target is a pool.
    pub wants: Option<Box<Wants>>,
    /// For a retry, the start tag of the call's first dispatch. A retry keeps that position in fair
    /// queueing, is charged like any attempt, and is exempt from the queue bound.
    pub charged: Option<Tag>,
}

/// The actual usage of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// As counted by the provider.
    pub usage: Usage,
    /// The actual [`Ticket::cost`].
    pub cost: f64,
}

/// Why a call was not admitted, and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The number of calls of the tenant ahead. Counted up to 1,000 for calls that have waited.
    pub position: usize,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// The rule that kept the call from being admitted.
    pub why: Option<Why>,
    /// The maximum size of one call in tokens, if this call is too large.
    pub most: Option<u64>,
}

impl Refusal {
    /// Creates the refusal of a call that was granted a slot after its deadline.
    pub fn came_late(waited: Duration) -> Self {
        let why = Why { rule: Rule::Turn, since: waited, waited, ahead: 0, expected: Some(Duration::ZERO) };
        Self { reason: Reason::Deadline, position: 0, retry_after: None, why: Some(why), most: None }
    }
}

/// What the rules would have decided about a forced call (observe mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedDecision {
    /// The call would have been admitted.
    Admitted,
    /// The call would have waited.
    WouldWait,
}
