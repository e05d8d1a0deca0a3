//! The calls that have waited long enough, and how far each of them had come.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::ticket::Refusal;
use super::{COUNTED, Scheduler, WaiterId};
use crate::error::Reason;

impl<W> Scheduler<W> {
    /// The waiting calls that have waited long enough. The position of each is the one that it had before any of them left: calls that give
    /// up at the same moment are no nearer to the front for it.
    pub fn expired(&mut self, now: Instant) -> Vec<(W, Refusal)> {
        // A hanging probe may have opened the target by now, slots or not, and so set the wait budgets going.
        let _ = self.cooldown.ready(now, self.limit);
        let overdue = self.overdue(now);
        let positions = self.positions(&overdue);
        let mut expired = Vec::with_capacity(overdue.len());
        for (id, reason) in overdue {
            let position = positions.get(&id).copied().unwrap_or(COUNTED);
            let Some(waiter) = self.take(id) else { continue };
            self.place(waiter.tenant, waiter.ticket.lane);
            let after = match self.cooldown.until() {
                Some(until) => until.saturating_duration_since(now),
                None => self.pace.expected(position + 1),
            };
            expired.push((waiter.who, Refusal { reason, position, retry_after: Some(after) }));
        }
        expired
    }

    /// Each once, with the first reason that holds.
    fn overdue(&self, now: Instant) -> Vec<(WaiterId, Reason)> {
        let until = self.cooldown.until();
        let mut overdue: Vec<_> = self
            .waiters
            .by_deadline()
            .map_while(|(deadline, id)| {
                let reason = if self.draining {
                    Reason::Draining
                } else if deadline <= now {
                    Reason::Deadline
                } else if until.is_some_and(|until| until > deadline) {
                    // It could only wait to be told no: tell it now, while it can still go elsewhere.
                    self.closed_reason()
                } else {
                    return None;
                };
                Some((id, reason))
            })
            .collect();
        if !self.cooldown.is_closed() && !self.draining {
            let open = self.open(now);
            let spent = self.waiters.by_budget().take_while(|(ends, _)| *ends <= open);
            let in_time = |id| self.waiters.get(id).is_some_and(|waiter| waiter.ticket.deadline > now);
            overdue
                .extend(spent.map(|(_, id)| id).filter(|id| in_time(*id)).map(|id| (id, Reason::WaitBudget)));
        }
        overdue
    }

    /// Of these calls, how many of the same line stand before each; none where nobody does so far ahead as is counted.
    fn positions(&self, calls: &[(WaiterId, Reason)]) -> HashMap<WaiterId, usize> {
        let mut positions: HashMap<_, _> = calls.iter().map(|(id, _)| (*id, COUNTED)).collect();
        let mut lines = BTreeMap::new();
        for waiter in calls.iter().filter_map(|(id, _)| self.waiters.get(*id)) {
            *lines.entry((waiter.tenant, waiter.ticket.lane as usize)).or_insert(0) += 1;
        }
        for ((tenant, lane), mut left) in lines {
            let line = self.tenants.get(tenant).and_then(|tenant| tenant.lines.get(lane));
            for (position, (_, id)) in line.into_iter().flat_map(|line| &line.calls).take(COUNTED).enumerate()
            {
                if let Some(found) = positions.get_mut(id) {
                    *found = position;
                    left -= 1;
                }
                if left == 0 {
                    break;
                }
            }
        }
        positions
    }
}
