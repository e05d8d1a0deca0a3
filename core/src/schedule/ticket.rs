//! What passes between a call and the scheduler: what it asks with, and what it gets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ids::TenantId;
use crate::context::Lane;
use crate::cooldown::Epoch;
use crate::error::Reason;
use crate::fairness::Tag;

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
    /// For a retry, the start tag of its first dispatch: it was charged then, and passes the queue bound now.
    pub charged: Option<Tag>,
}

/// A slot, as the policy knows it. Goes back by [`Scheduler::release`](super::Scheduler::release), once.
#[derive(Debug)]
#[must_use = "a slot that is not released is lost"]
pub struct Grant {
    pub(super) tenant: TenantId,
    pub(super) tag: Tag,
    pub(super) epoch: Epoch,
    /// What the wait took of the call's wait budget.
    pub(super) spent: Duration,
    /// Whether the target has been told how the attempt went.
    pub(super) judged: bool,
}

impl Grant {
    /// What a retry of the call carries in [`Ticket::charged`].
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// What the wait took of the call's wait budget; time during which the target was closed is not in it.
    pub fn spent(&self) -> Duration {
        self.spent
    }
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
}

/// What the rules would have said to a call that observe mode let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go.
    Admitted,
    /// Wait.
    WouldWait,
}
