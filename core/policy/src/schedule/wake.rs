//! When time alone lets a waiting call go.

use std::time::Instant;

use super::available::Available;
use super::fit_set::earlier;
use super::ids::TenantId;
use super::requirements::Requirements;
use super::select::{LineHead, Selector};
use super::tenants::Tenant;
use crate::Lane;

impl<W> Selector<'_, W> {
    /// Returns when time alone lets a waiting call go although it cannot go now.
    ///
    /// Exact, except that a call which becomes aged in the meantime may hold others back.
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
                // Calls that have failed here hold nothing back from a probe.
                let unfailed = Available { unfailed_only: true, ..all };
                let reservation = self.reserve_for_front(&unfailed);
                let reservation = std::mem::replace(&mut self.order.reservation, reservation);
                best = earlier(best, self.soonest_tokens(unfailed));
                self.order.reservation = reservation;
            }
        }
        if self.order.reservation.is_some() {
            // Another line at the front may need no reservation, or a different one.
            best = earlier(best, self.queue.lanes.next_change(now, self.order.aging));
            best = earlier(best, self.queue.lanes.parked().next().map(|(until, ..)| until));
        }
        best
    }

    /// Returns when a call has the tokens that it lacks, in the budgets or of its tenant.
    fn soonest_tokens(&mut self, available: Available) -> Option<Instant> {
        // A call with enough tokens now lacks memory, which time alone does not restore.
        let now = self.now;
        let later = |at: &Instant| *at > now;
        let mut best = None;
        let less = self.less_reserved(available.clone());
        for lane in Lane::ALL {
            let this = &*self;
            let (capacity, reservation, available, less) =
                (&*this.capacity, this.order.reservation, &available, &less);
            let unheld = |needs: &Requirements| capacity.ready_at(now, &needs.need, &available.of(needs)?);
            let among = |needs: &Requirements, available: &Available| {
                let held =
                    reservation.is_some_and(|reservation| reservation.resources.is_used_by(&needs.need));
                if held { None } else { capacity.ready_at(now, &needs.need, &available.of(needs)?) }
            };
            let time = |needs: &Requirements| among(needs, less);
            let of = &mut |id: TenantId| {
                let tenant = this.queue.tenants.get(id)?;
                let line = &tenant.lines[lane as usize];
                let LineHead { call, needs, aged } = this.head_within(id, lane, available)?;
                let tenant_tokens = |needs: &Requirements, at: Instant| own_ready(tenant, now, needs).max(at);
                let head = if reservation.is_some_and(|reservation| reservation.call == call) {
                    unheld(&needs).map(|at| tenant_tokens(&needs, at)).filter(later)
                } else {
                    time(&needs).map(|at| tenant_tokens(&needs, at)).filter(later)
                };
                let behind = if aged {
                    this.behind(&LineHead { call, needs, aged }, less, tenant.token_room(now))
                } else {
                    Some(less.clone())
                };
                let Some(behind) = behind else { return head };
                let of = &mut |needs: &Requirements| {
                    among(needs, &behind).map(|at| tenant_tokens(needs, at)).filter(later)
                };
                let bound = &mut |least: &Requirements| among(least, &behind);
                line.calls.soonest(head, bound, &mut |_, needs| of(needs))
            };
            // The lane's own bound does not hold for the head with the reservation.
            let bound =
                &mut |least: &Requirements| if reservation.is_some() { unheld(least) } else { time(least) };
            best = this.queue.lanes.soonest(lane, best, bound, of);
        }
        earlier(best, self.soonest_parked(&available, best))
    }

    /// Returns when a parked line has a call that fits, if that is before `best`.
    fn soonest_parked(&self, available: &Available, mut best: Option<Instant>) -> Option<Instant> {
        for (until, lane, id) in self.queue.lanes.parked() {
            if best.is_some_and(|best| best <= until) {
                break;
            }
            let least =
                self.queue.tenants.get(id).and_then(|tenant| tenant.lines[lane as usize].calls.least());
            let at =
                least.and_then(|least| self.capacity.ready_at(self.now, &least.need, &available.of(&least)?));
            best = earlier(best, at.map(|at| at.max(until)));
        }
        best
    }
}

fn own_ready(tenant: &Tenant, now: Instant, needs: &Requirements) -> Instant {
    tenant.tokens.as_ref().map_or(now, |tenant_tokens| tenant_tokens.ready_at(now, needs.tenant_tokens))
}
