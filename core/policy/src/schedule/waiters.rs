//! The table of waiting calls, ordered by deadline and by wait budget.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Ticket;
use super::ids::{TenantId, WaiterId};
use super::requirements::Requirements;

#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) who: W,
    pub(super) tenant: TenantId,
    pub(super) ticket: Ticket,
    pub(super) needs: Requirements,
    /// The sort key in the line.
    pub(super) order: Instant,
    /// When the call was queued, on the clock that stops during cool-downs.
    pub(super) since: Duration,
    /// When the wait budget ends, on the clock that stops during cool-downs.
    budget_ends: Option<Duration>,
}

impl<W> Waiter<W> {
    /// Creates an entry. `open` is the time for which the target has been open so far.
    pub(super) fn new(
        who: W,
        tenant: TenantId,
        ticket: Ticket,
        needs: Requirements,
        order: Instant,
        open: Duration,
    ) -> Self {
        let budget_ends = ticket.wait.map(|wait| open.saturating_add(wait));
        Self { who, tenant, ticket, needs, order, since: open, budget_ends }
    }
}

#[derive(Debug)]
pub(super) struct Waiters<W> {
    table: Vec<Option<(u64, Waiter<W>)>>,
    free: Vec<usize>,
    next: u64,
    by_deadline: BTreeSet<(Instant, WaiterId)>,
    by_budget: BTreeSet<(Duration, WaiterId)>,
}

impl<W> Waiters<W> {
    pub(super) fn new() -> Self {
        Self {
            table: Vec::new(),
            free: Vec::new(),
            next: 0,
            by_deadline: BTreeSet::new(),
            by_budget: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    pub(super) fn insert(&mut self, waiter: Waiter<W>) -> WaiterId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() - 1
        });
        let id = WaiterId { number: self.next, place };
        self.next += 1;
        self.by_deadline.insert((waiter.ticket.deadline, id));
        if let Some(ends) = waiter.budget_ends {
            self.by_budget.insert((ends, id));
        }
        if let Some(slot) = self.table.get_mut(place) {
            *slot = Some((id.number, waiter));
        }
        id
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<W>> {
        match self.table.get(id.place)? {
            Some((number, waiter)) if *number == id.number => Some(waiter),
            _ => None,
        }
    }

    /// Returns all calls, in no particular order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (WaiterId, &mut Waiter<W>)> {
        let table = self.table.iter_mut().enumerate();
        table.filter_map(|(place, slot)| {
            let (number, waiter) = slot.as_mut()?;
            Some((WaiterId { number: *number, place }, waiter))
        })
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        self.get(id)?;
        let (_, waiter) = self.table.get_mut(id.place)?.take()?;
        self.free.push(id.place);
        self.by_deadline.remove(&(waiter.ticket.deadline, id));
        if let Some(ends) = waiter.budget_ends {
            self.by_budget.remove(&(ends, id));
        }
        Some(waiter)
    }

    /// Returns all calls by deadline.
    pub(super) fn by_deadline(&self) -> impl Iterator<Item = (Instant, WaiterId)> {
        self.by_deadline.iter().copied()
    }

    /// Returns the calls with a wait budget by its end, on the clock of open time.
    pub(super) fn by_budget(&self) -> impl Iterator<Item = (Duration, WaiterId)> {
        self.by_budget.iter().copied()
    }

    /// Returns the call with the first deadline.
    pub(super) fn first_deadline(&self) -> Option<(Instant, WaiterId)> {
        self.by_deadline.first().copied()
    }

    /// Returns the call whose wait budget ends first, on the clock of open time.
    pub(super) fn first_budget(&self) -> Option<(Duration, WaiterId)> {
        self.by_budget.first().copied()
    }
}
