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
    /// The time at which the call is refused if it is still waiting. In contrast to `wait`, it does
    /// not move while the target is closed.
    pub deadline: Instant,
    /// The wait budget: how long the call may wait. The time in which the target is closed (it
    /// cools down, is being probed, or has no replica that accepts calls) counts only with
    /// [`SchedulerSettings::has_fallback`](super::SchedulerSettings::has_fallback). `None`: the
    /// call may wait until `deadline`.
    pub wait: Option<Duration>,
    /// When the caller's own client stops waiting for a slot. The call is refused at this time if
    /// it is still waiting and the target is down or has no replica that accepts calls, in which
    /// case `wait` may stand still. `None`: the client has no such timeout.
    pub client_timeout: Option<Instant>,
    /// Whether an earlier attempt of the call at this target failed in a way that the call itself
    /// may have caused. Such a call is not sent as a probe of a failing target if another call can
    /// be.
    pub has_failed: bool,
    /// The input and the expected output of the call, in tokens. The call is charged by them to the
    /// rate budgets and to the engine's memory.
    pub demand: Demand,
    /// The expected length of the answer in tokens, from which the call's use of the engine's
    /// memory is predicted. The default uses the expected output of `demand`.
    pub forecast: Forecast,
    /// Whether the answer is streamed, that is, arrives token by token.
    pub streams: bool,
    /// The estimated cost in fair queueing, in the unit that the target is configured for: input
    /// and output tokens, tokens in memory times seconds, or 1 per call. Must be positive and
    /// finite.
    pub cost: f64,
    /// What the call requires of its replica, such as a model, and the replicas that it should
    /// avoid. `None`: any replica may take it. Ignored unless the target is a pool.
    pub wants: Option<Box<Wants>>,
    /// For a retry, the value of [`Grant::queue_tag`](super::Grant::queue_tag) of the call's first
    /// attempt; otherwise `None`. A retry keeps its position in fair queueing, may wait even if the
    /// queue is full or the target refuses calls instead of queueing them (unless
    /// [`SchedulerSettings::has_fallback`](super::SchedulerSettings::has_fallback)), and is charged
    /// like any attempt.
    pub queue_tag: Option<Tag>,
    /// Whether the call was accepted before, and has waited for something else than a slot since.
    /// Like a retry, such a call may wait even if the queue is full. The default is `false`.
    pub is_accepted: bool,
}

impl Ticket {
    /// Creates the ticket of a first attempt in the standard lane, which may wait until `deadline`,
    /// uses no tokens and costs 1. See [`Ticket`] for the other fields.
    pub fn new(tenant: Arc<str>, queued_at: Instant, deadline: Instant) -> Self {
        Self {
            tenant,
            lane: Lane::Standard,
            queued_at,
            deadline,
            wait: None,
            client_timeout: None,
            has_failed: false,
            demand: Demand::default(),
            forecast: Forecast::default(),
            streams: false,
            cost: 1.0,
            wants: None,
            queue_tag: None,
            is_accepted: false,
        }
    }

    /// Returns `true` if the call may wait even if the queue is full: it is a retry, or was
    /// accepted before.
    pub fn ignores_queue_size(&self) -> bool {
        self.queue_tag.is_some() || self.is_accepted
    }
}

/// The actual usage of an attempt, which replaces the estimates that it was charged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// The tokens that the provider counted.
    pub usage: Usage,
    /// The actual cost in fair queueing, in the unit of [`Ticket::cost`].
    pub cost: f64,
}

/// Why a call was not admitted, and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason that is reported to the caller.
    pub reason: Reason,
    /// The number of calls that were ahead of the call. If the call was waiting: the waiting calls
    /// of the same tenant and lane that were ahead of it, at most 1,000. If the call was new: all
    /// waiting calls of the same tenant.
    pub position: usize,
    /// The estimated time from the refusal until the call may be admitted, or `None` if it is not
    /// known or if trying again at this target is of no use. For a pool in which no replica accepts
    /// calls: until the next health probe is answered or a replica's Retry-After is over.
    pub retry_after: Option<Duration>,
    /// The rule that kept the call from being admitted, with details, or `None` if it was not
    /// determined. Also `None` if the deadline of the call had passed before the call was made.
    pub why: Option<WaitExplanation>,
    /// The maximum size of one call in tokens if `reason` is [`Reason::TooLarge`]: of its input if
    /// the memory is too small for it, otherwise as the exceeded rate budget counts. `None` for
    /// other reasons.
    pub max_tokens: Option<u64>,
}

impl Refusal {
    /// Creates the refusal of a call that got its slot only after its deadline. `waited` is the
    /// time since the call was first queued.
    pub fn granted_after_deadline(waited: Duration) -> Self {
        let why = WaitExplanation {
            rule: Rule::Turn,
            origin: None,
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
