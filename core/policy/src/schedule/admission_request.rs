//! The values that the driver and the scheduler exchange about a call: its [`Ticket`], its
//! [`Refusal`], and its actual usage ([`Settled`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Reason, Rule, WaitExplanation};
use crate::{Lane, fairness::Tag, kv::Forecast, placement::Wants};
use tidegate_protocol::Usage;
use tidegate_tokens::Demand;

/// A request for admission: what the scheduler needs to know about a call.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The fairness key. Calls with the same key count as calls of one tenant: they share its
    /// limits and its position in fair queueing.
    pub tenant: Arc<str>,
    /// The priority class of the call.
    pub lane: Lane,
    /// When the call was first queued. A retry keeps the time of the first attempt.
    pub queued_at: Instant,
    /// When the call is refused if it still waits. In contrast to `wait`, time while the target is
    /// closed counts.
    pub deadline: Instant,
    /// The wait budget: how long the call may wait, not counting time while the target is closed.
    /// `None`: the call may wait until `deadline`.
    pub wait: Option<Duration>,
    /// Whether an earlier attempt of the call at this target failed in a way that the call itself
    /// may have caused. Such a call is not used as a probe if another call can be.
    pub has_failed: bool,
    /// The input and the expected output of the call, in tokens, from which the budgets and the
    /// memory are charged.
    pub demand: Demand,
    /// The expected length of the answer, from which its use of memory is predicted. The default
    /// uses the expected output of `demand`.
    pub forecast: Forecast,
    /// Whether the answer is streamed, so that its first token arrives before its end.
    pub streams: bool,
    /// The estimated cost in fair queueing: tokens, tokens times seconds of memory, or 1 per call.
    /// Must be positive and finite.
    pub cost: f64,
    /// What the call requires of its replica, such as a model, and the replicas that it should
    /// avoid. `None`: any replica may take it. Ignored unless the target is a pool.
    pub wants: Option<Box<Wants>>,
    /// For a retry, the value of [`Grant::charged`](super::Grant::charged) of the call's first
    /// attempt; otherwise `None`. A retry keeps its position in fair queueing, may wait even if the
    /// queue is full, and is charged like any attempt.
    pub charged: Option<Tag>,
}

/// The actual usage of an attempt, which replaces the estimates that it was charged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// The tokens that the provider counted.
    pub usage: Usage,
    /// The actual value of [`Ticket::cost`].
    pub cost: f64,
}

/// Why a call was not admitted, and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason that is reported to the caller.
    pub reason: Reason,
    /// The number of waiting calls of the same tenant that were ahead of the call. At most 1,000
    /// for calls that have waited.
    pub position: usize,
    /// The time after which the call may be admitted, or `None` if it is not known or if trying
    /// again is of no use.
    pub retry_after: Option<Duration>,
    /// The rule that kept the call from being admitted, or `None` if it was not determined.
    pub why: Option<WaitExplanation>,
    /// The maximum size of one call in tokens if `reason` is [`Reason::TooLarge`], otherwise
    /// `None`.
    pub max_tokens: Option<u64>,
}

impl Refusal {
    /// Creates the refusal of a call that got its slot only after its deadline. `waited` is the
    /// time since the call was first queued.
    pub fn granted_after_deadline(waited: Duration) -> Self {
        let why = WaitExplanation {
            rule: Rule::Turn,
            since: waited,
            waited,
            ahead: 0,
            expected: Some(Duration::ZERO),
        };
        Self { reason: Reason::Deadline, position: 0, retry_after: None, why: Some(why), max_tokens: None }
    }
}

/// What the rules would have decided about a call that was admitted by
/// [`Scheduler::force`](super::Scheduler::force).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedDecision {
    /// The call would have been admitted at once.
    Admitted,
    /// The call would have been queued.
    WouldWait,
}
