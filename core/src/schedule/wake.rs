//! When to ask again: no later than something comes due, and for nothing else.

use std::time::Instant;

use super::Scheduler;
use super::claim::Claim;
use super::ids::TenantId;
use super::order::LineHead;
use super::ranked::earlier;
use super::rooms::Rooms;
use super::tenants::Tenant;
use crate::context::Lane;

impl<W> Scheduler<W> {
    /// When to call [`Scheduler::expired`] and [`Scheduler::next`] again, if nothing else happens before. Time has moved since they were last
    /// asked: what has come due meanwhile is due now.
    pub fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        if !self.displaced.is_empty() {
            return Some(now);
        }
        let (mut wake, _) = self.waiters.first_deadline()?;
        self.tick(now);
        // Only while calls wait: else whatever comes next lets the limit see the time.
        if let Some(at) = self.upstream.next_wake(now).filter(|at| *at > now) {
            wake = wake.min(at);
        }
        // First, for it may open the target, and so set the wait budgets going.
        let ready = self.cooldown.ready(now, self.upstream.slots(), false);
        if !self.is_closed()
            && let Some((ends, _)) = self.waiters.first_budget()
        {
            let ends = now.checked_add(ends.saturating_sub(self.open(now)));
            wake = ends.map_or(wake, |ends| wake.min(ends));
        }
        match ready {
            Err(at) => Some(wake.min(at)),
            Ok(()) if self.has_slot() => {
                if self.pick(now).is_some() {
                    return Some(now);
                }
                // A probe may go, but none of the calls that have failed here.
                let retries = self.cooldown.ready(now, self.upstream.slots(), true).err();
                earlier(earlier(Some(wake), retries), self.soonest(now))
            }
            _ => Some(wake),
        }
    }

    /// When time alone lets a call go, of those that wait though slots are free. Exact but for what ages on the way: who is aged then may hold
    /// up who is not now.
    fn soonest(&mut self, now: Instant) -> Option<Instant> {
        if !self.is_sized() {
            return None;
        }
        let mut best = None;
        // Time alone gives back tokens, and neither slots nor memory.
        if self.own_tokens || self.stock.has_rates() {
            let all = self.rooms(now);
            best = self.soonest_tokens(now, all.clone());
            if self.cooldown.is_probing() {
                // The calls that have failed here hold nothing back from a probe.
                let unfailed = Rooms { unfailed_only: true, ..all };
                let hold = self.hold_for_front(now, &unfailed);
                let hold = std::mem::replace(&mut self.hold, hold);
                best = earlier(best, self.soonest_tokens(now, unfailed));
                self.hold = hold;
            }
        }
        if self.hold.is_some() {
            // Another line at the front may want nothing held, or something else.
            best = earlier(best, self.lanes.next_change(now, self.settings.aging));
            best = earlier(best, self.lanes.parked().next().map(|(until, ..)| until));
        }
        best
    }

    /// Returns when a call has the tokens that it lacks of these rooms, or of its tenant's own.
    fn soonest_tokens(&mut self, now: Instant, rooms: Rooms) -> Option<Instant> {
        // What the budgets have now lacks memory, which time alone does not give back.
        let later = |at: &Instant| *at > now;
        let mut best = None;
        let less = self.less_held(rooms.clone());
        for lane in Lane::ALL {
            let this = &*self;
            let (stock, hold, rooms, less) = (&this.stock, this.hold, &rooms, &less);
            let unheld = |claim: &Claim| stock.ready_at(now, &claim.need, &rooms.of(claim)?);
            let among = |claim: &Claim, rooms: &Rooms| {
                let held = hold.is_some_and(|hold| hold.held.is_used_by(&claim.need));
                if held { None } else { stock.ready_at(now, &claim.need, &rooms.of(claim)?) }
            };
            let time = |claim: &Claim| among(claim, less);
            let of = &mut |id: TenantId| {
                let tenant = this.tenants.get(id)?;
                let line = &tenant.lines[lane as usize];
                let LineHead { call, claim, aged } = this.head_within(now, id, lane, rooms)?;
                let own = |claim: &Claim, at: Instant| own_ready(tenant, now, claim).max(at);
                let head = if hold.is_some_and(|hold| hold.call == call) {
                    unheld(&claim).map(|at| own(&claim, at)).filter(later)
                } else {
                    time(&claim).map(|at| own(&claim, at)).filter(later)
                };
                let behind = if aged {
                    this.behind(&LineHead { call, claim, aged }, less, tenant.own_room(now))
                } else {
                    Some(less.clone())
                };
                let Some(behind) = behind else { return head };
                let of = &mut |claim: &Claim| among(claim, &behind).map(|at| own(claim, at)).filter(later);
                let bound = &mut |least: &Claim| among(least, &behind);
                line.calls.soonest(head, bound, &mut |_, claim| of(claim))
            };
            // Of the head for which room is held, the lane's own bound says nothing.
            let bound = &mut |least: &Claim| if hold.is_some() { unheld(least) } else { time(least) };
            best = this.lanes.soonest(lane, best, bound, of);
        }
        earlier(best, self.soonest_parked(now, &rooms, best))
    }

    /// When a line that stands aside for want of its tenant's own tokens has a call that fits, if that is before `best`.
    fn soonest_parked(&self, now: Instant, rooms: &Rooms, mut best: Option<Instant>) -> Option<Instant> {
        for (until, lane, id) in self.lanes.parked() {
            if best.is_some_and(|best| best <= until) {
                break;
            }
            let least = self.tenants.get(id).and_then(|tenant| tenant.lines[lane as usize].calls.least());
            let at = least.and_then(|least| self.stock.ready_at(now, &least.need, &rooms.of(&least)?));
            best = earlier(best, at.map(|at| at.max(until)));
        }
        best
    }
}

fn own_ready(tenant: &Tenant, now: Instant, claim: &Claim) -> Instant {
    tenant.own.as_ref().map_or(now, |own| own.ready_at(now, claim.own))
}
