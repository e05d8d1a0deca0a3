//! The table of waiting calls, ordered by deadline, by the timeout of the caller's client, and by
//! the end of the wait budget.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use slab::Slab;

use super::{Candidate, Requirements, TenantId, Ticket};

/// Identifies a waiting call within its scheduler. Never used again for another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    /// The number of calls that were queued before this one. Orders calls that were queued at the
    /// same time.
    pub(super) number: u64,
    /// The index in the table. Reused for another call after this one has left the queue.
    pub(super) place: usize,
}

/// A waiting call, with its ticket and its requirements.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) who: W,
    pub(super) tenant: TenantId,
    pub(super) ticket: Ticket,
    pub(super) needs: Requirements,
    /// The time by which the call is ordered among the waiting calls of its tenant and lane: when
    /// it was queued, plus a delay in proportion to its tokens.
    pub(super) order: Instant,
    /// When the call was queued, on the clock of wait budgets
    /// ([`Scheduler::wait_clock`](super::Scheduler::wait_clock)).
    pub(super) since: Duration,
    /// When the call's wait budget ends, on the same clock. `None`: the call has no wait budget.
    pub(super) budget_ends: Option<Duration>,
}

impl<W> Waiter<W> {
    pub(super) fn candidate(&self) -> Candidate<'_> {
        Candidate { tenant: self.tenant, ticket: &self.ticket, needs: self.needs }
    }
}

/// The table of waiting calls, also ordered by each time at which they stop waiting.
#[derive(Debug)]
pub(super) struct Waiters<W> {
    table: Slab<(u64, Waiter<W>)>,
    /// The value of [`WaiterId::number`] for the next call that is queued.
    next: u64,
    /// All waiting calls by deadline.
    pub(super) by_deadline: BTreeSet<(Instant, WaiterId)>,
    /// The waiting calls whose client has a timeout, by [`Ticket::client_timeout`].
    pub(super) by_client_timeout: BTreeSet<(Instant, WaiterId)>,
    /// The waiting calls with a wait budget, by [`Waiter::budget_ends`].
    pub(super) by_budget: BTreeSet<(Duration, WaiterId)>,
}

impl<W> Waiters<W> {
    pub(super) fn new() -> Self {
        Self {
            table: Slab::new(),
            next: 0,
            by_deadline: BTreeSet::new(),
            by_client_timeout: BTreeSet::new(),
            by_budget: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    pub(super) fn insert(&mut self, waiter: Waiter<W>) -> WaiterId {
        let id = WaiterId { number: self.next, place: self.table.vacant_key() };
        self.next += 1;
        self.by_deadline.insert((waiter.ticket.deadline, id));
        if let Some(at) = waiter.ticket.client_timeout {
            self.by_client_timeout.insert((at, id));
        }
        if let Some(ends) = waiter.budget_ends {
            self.by_budget.insert((ends, id));
        }
        self.table.insert((id.number, waiter));
        id
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<W>> {
        let (number, waiter) = self.table.get(id.place)?;
        (*number == id.number).then_some(waiter)
    }

    /// Returns all waiting calls in no particular order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (WaiterId, &mut Waiter<W>)> {
        let waiters = self.table.iter_mut();
        waiters.map(|(place, (number, waiter))| (WaiterId { number: *number, place }, waiter))
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        self.get(id)?;
        let (_, waiter) = self.table.remove(id.place);
        self.by_deadline.remove(&(waiter.ticket.deadline, id));
        if let Some(at) = waiter.ticket.client_timeout {
            self.by_client_timeout.remove(&(at, id));
        }
        if let Some(ends) = waiter.budget_ends {
            self.by_budget.remove(&(ends, id));
        }
        Some(waiter)
    }
}
