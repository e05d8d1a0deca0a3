//! The times at which a waiting call becomes admissible without another event.

use std::time::Instant;

use super::{Available, Candidate, LineKey, Requirements, Selector, WaiterId, earlier};
use crate::Lane;

impl<W> Selector<'_, W> {
    /// Returns the earliest time at which a waiting call that is not admissible now becomes
    /// admissible without another event. Returns `None` if only other events can make a call
    /// admissible.
    ///
    /// The returned time may be too early: if a call reaches the ageing time before it, other calls
    /// may no longer take what that call lacks.
    pub(super) fn soonest(&mut self) -> Option<Instant> {
        if !self.capacity.is_sized() {
            return None;
        }
        let now = self.now;
        let mut best = None;
        // Time alone restores tokens, but neither slots nor memory.
        if self.capacity.has_rates() {
            let all = self.capacity.available(now);
            best = self.soonest_tokens(all.clone());
            if self.capacity.upstream.is_probing() {
                // Nothing is reserved for calls that have failed here if another call can be the
                // probe.
                let unfailed = Available { unfailed_only: true, ..all };
                let reservation = self.reserve_for_front(&unfailed);
                let reservation = std::mem::replace(&mut self.order.reservation, reservation);
                best = earlier(best, self.soonest_tokens(unfailed));
                self.order.reservation = reservation;
            }
        }
        if let Some(held) = self.order.reservation {
            // Another line at the front may need no reservation, or a different one.
            best = earlier(best, self.queue.lanes.next_change(now, self.order.aging));
            best = earlier(best, self.queue.lanes.parked.first().map(|(until, ..)| *until));
            best = earlier(best, self.tokens_kept_from(held.call));
        }
        best
    }

    /// Returns when a call of the same tenant in a higher lane next reaches the ageing time, from
    /// which on the tenant's own tokens may be kept for it, so that the line of `call` is parked.
    /// Returns `None` if there is no such call, or if the tenant has no limit of tokens.
    fn tokens_kept_from(&self, call: WaiterId) -> Option<Instant> {
        let Candidate { tenant, ticket, .. } = self.queue.waiters.get(call)?.candidate();
        let tenant = self.queue.tenants.get(tenant).filter(|tenant| tenant.tokens.is_some())?;
        let higher = tenant.lines.iter().take(ticket.lane as usize);
        let aged_at = higher.filter_map(|line| {
            let ((_, head), _) = line.calls.first()?;
            self.queue.waiters.get(head)?.ticket.queued_at.checked_add(self.order.aging)
        });
        aged_at.filter(|at| *at > self.now).min()
    }

    /// Returns the earliest time at which a waiting call has all tokens that it lacks, in the rate
    /// budgets and of its tenant's own. Returns `None` if no call lacks only tokens.
    fn soonest_tokens(&self, available: Available) -> Option<Instant> {
        let less = self.unreserved(available.clone());
        let (now, reservation) = (self.now, self.order.reservation);
        let in_budgets = |needs: &Requirements, within: &Available| {
            self.capacity.ready_at(now, &needs.need, &within.room_for(needs)?)
        };
        let beside_reserved = |needs: &Requirements, within: &Available| {
            let is_reserved = reservation.is_some_and(|held| held.resources.is_used_by(&needs.need));
            if is_reserved { None } else { in_budgets(needs, within) }
        };
        let mut best = None;
        for lane in Lane::ALL {
            let of = &mut |line: &LineKey, _: &Requirements| {
                let tenant = self.queue.tenants.get(line.tenant)?;
                let head = self.head_within(line.tenant, lane, &available)?;
                // A call with enough tokens now lacks memory, which time alone does not restore.
                let later = |needs: &Requirements, at: Option<Instant>| {
                    at.map(|at| at.max(tenant.tokens_at(now, needs))).filter(|at| *at > now)
                };
                let has_reservation = reservation.is_some_and(|held| held.call == head.call);
                let at = if has_reservation {
                    in_budgets(&head.needs, &available)
                } else {
                    beside_reserved(&head.needs, &less)
                };
                let at = later(&head.needs, at);
                let Some(behind) = self.room_behind(&head, &less, tenant.token_room(now)) else {
                    return at;
                };
                let bound = &mut |least: &Requirements| beside_reserved(least, &behind);
                let of = &mut |_: &_, needs: &Requirements| later(needs, beside_reserved(needs, &behind));
                tenant.lines[lane as usize].calls.soonest(at, bound, of)
            };
            let bound = &mut |least: &Requirements| in_budgets(least, &available);
            best = self.queue.lanes.lane(lane).by_tag.soonest(best, bound, of);
        }
        earlier(best, self.soonest_parked(&available, best))
    }

    /// Returns the earlier of `best` and the first time at which a parked line (one whose tenant is
    /// out of its own tokens) has a call that fits. `None` stands for never.
    fn soonest_parked(&self, available: &Available, mut best: Option<Instant>) -> Option<Instant> {
        for (until, lane, id) in &self.queue.lanes.parked {
            if best.is_some_and(|best| best <= *until) {
                break;
            }
            let least = self.queue.line(*id, *lane).and_then(|line| line.calls.least());
            let at = least.and_then(|least| {
                self.capacity.ready_at(self.now, &least.need, &available.room_for(&least)?)
            });
            best = earlier(best, at.map(|at| at.max(*until)));
        }
        best
    }
}
