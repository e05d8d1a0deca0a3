//! What passes between a call and the scheduler: what it asks with, and what it gets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Reason, Rule, Why};
use crate::context::Lane;
use crate::estimate::Demand;
use crate::fairness::Tag;
use crate::kv::Forecast;
use crate::placement::Wants;
use crate::wire::Usage;

/// What a call says of itself at the door.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The fairness key.
    pub tenant: Arc<str>,
    /// The priority class.
    pub lane: Lane,
    /// When the call was first queued: its age, which retries keep.
    pub queued_at: Instant,
    /// When it stops waiting, whatever the target does.
    pub deadline: Instant,
    /// The longest it waits while the target is open: of a retry, what its earlier waits have left of that.
    pub wait: Option<Duration>,
    /// Whether an attempt of the call at this target failed in a way that may be the call's own doing: it ran, or may have.
    pub has_failed: bool,
    /// What it is expected to take of budgets and memory.
    pub demand: Demand,
    /// How long its answer may become, where memory is accounted for; the default: as its demand says.
    pub forecast: Forecast,
    /// Whether its answer comes as a stream, and so has a first token before its end.
    pub streams: bool,
    /// What its tenant is charged in fair queueing: tokens, tokens times seconds of memory, or 1 where calls are counted. Above zero, and finite.
    pub cost: f64,
    /// What it asks of the replica that it is placed at, where its target is a pool.
    pub wants: Option<Box<Wants>>,
    /// For a retry, the start tag of its first dispatch: the retry keeps that place in fair queueing,
    /// is charged like any attempt, and passes the queue bound.
    pub charged: Option<Tag>,
}

/// What a call turned out to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// As its provider counted.
    pub usage: Usage,
    /// The same as [`Ticket::cost`], from what is known now.
    pub cost: f64,
}

/// Why a call was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub reason: Reason,
    /// How many calls of the tenant stood ahead; counted up to a thousand for a call that has waited.
    pub position: usize,
    /// When it is worth coming back.
    pub retry_after: Option<Duration>,
    /// What stood in its way.
    pub why: Option<Why>,
    /// Of a call that is too large: the most tokens that one call may take.
    pub most: Option<u64>,
}

impl Refusal {
    /// Of a call that came for its slot after its deadline, having waited so long.
    pub(crate) fn came_late(waited: Duration) -> Self {
        let why = Why { rule: Rule::Turn, since: waited, waited, ahead: 0, expected: Some(Duration::ZERO) };
        Self { reason: Reason::Deadline, position: 0, retry_after: None, why: Some(why), most: None }
    }
}

/// What the rules would have said to a call that observe mode let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedDecision {
    /// Go.
    Admitted,
    /// Wait.
    WouldWait,
}
