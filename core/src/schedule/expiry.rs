//! The calls that have waited long enough, and how far each of them had come.

use std::time::Instant;

use super::reason::Reason;
use super::ticket::Refusal;
use super::{COUNTED, Scheduler, WaiterId};

impl<W> Scheduler<W> {
    /// The calls that leave the queue without a slot: those that have waited long enough, and those who gave up their places to more urgent ones.
    /// The position of each is the one that it had before any of them left: calls that give up at the same moment are no nearer to the
    /// front for it.
    pub fn expired(&mut self, now: Instant) -> Vec<(W, Refusal)> {
        self.tick(now);
        // A hanging probe may have opened the target by now, slots or not, and so set the wait budgets going.
        let _ = self.cooldown.ready(now, self.upstream.slots(), false);
        let mut expired = std::mem::take(&mut self.displaced);
        let overdue: Vec<_> = self
            .overdue(now)
            .into_iter()
            .map(|(id, reason)| (id, reason, self.position(id), self.explain(now, id)))
            .collect();
        expired.reserve(overdue.len());
        for (id, reason, position, why) in overdue {
            let Some(waiter) = self.take(id) else { continue };
            self.place(waiter.tenant, waiter.ticket.lane);
            let after = match self.closed_until(now) {
                Some(until) => until.saturating_duration_since(now),
                None => self.pace().expected(position.min(COUNTED) + 1),
            };
            let position = position.min(COUNTED);
            expired
                .push((waiter.who, Refusal { reason, position, retry_after: Some(after), why, most: None }));
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
        if !self.is_closed() && !self.draining {
            let open = self.open(now);
            let spent = self.waiters.by_budget().take_while(|(ends, _)| *ends <= open);
            let in_time = |id| self.waiters.get(id).is_some_and(|waiter| waiter.ticket.deadline > now);
            overdue
                .extend(spent.map(|(_, id)| id).filter(|id| in_time(*id)).map(|id| (id, Reason::WaitBudget)));
        }
        overdue
    }
}
