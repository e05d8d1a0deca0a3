//! Bounds of the queue, and who gives up its place when they are reached.
//!
//! There are three: for each tenant, for each lane, and for all together. A more urgent call that finds a bound reached takes the place of the
//! youngest of the lowest lane below its own, inside that bound, of the tenant with the most of them. Retries give up nothing, nor do
//! tenants that are exempt.

use std::time::Instant;

use super::ids::{TenantId, WaiterId};
use super::reason::Reason;
use super::tardy::Tardy;
use super::tenants::Tenant;
use super::{COUNTED, Refusal, Scheduler};
use crate::context::Lane;

/// The lines that may be shed from, the longest last.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    by_lane: [Tardy<usize>; 3],
}

/// Whether one more call may wait.
pub(super) enum Space {
    Free,
    /// In the place of this one.
    Of(WaiterId),
    Full,
}

impl Crowds {
    /// Follows a line, of which one call more or less waits now.
    pub(super) fn update(&mut self, lane: Lane, id: TenantId, tenant: &Tenant) {
        if tenant.shed {
            let fresh = tenant.lines[lane as usize].fresh;
            self.by_lane[lane as usize].set(id, (fresh > 0).then_some(fresh));
        }
    }

    fn longest(&mut self, lane: Lane) -> Option<TenantId> {
        Some(self.by_lane[lane as usize].order().last()?.1)
    }
}

impl<W> Scheduler<W> {
    /// Whether a new call of that tenant may wait in that lane.
    pub(super) fn space(&mut self, id: TenantId, lane: Lane) -> Space {
        let Some(tenant) = self.tenants.get(id) else { return Space::Full };
        if self.settings.lanes[lane as usize].queue.is_some_and(|most| self.load.waiting(lane) >= most) {
            // In its own lane nobody is below it.
            return Space::Full;
        }
        let of_tenant = tenant.waiting >= tenant.queue;
        if !of_tenant && self.waiters.len() < self.settings.backlog {
            return Space::Free;
        }
        let mut lower = Lane::ALL.into_iter().rev().take_while(|below| *below > lane);
        let victim = lower.find_map(|below| {
            let of = if of_tenant { id } else { self.crowds.longest(below)? };
            self.youngest(of, below)
        });
        victim.map_or(Space::Full, Space::Of)
    }

    /// Of a line, the last that may be shed.
    fn youngest(&self, id: TenantId, lane: Lane) -> Option<WaiterId> {
        let tenant = self.tenants.get(id)?;
        let line = &tenant.lines[lane as usize];
        if !tenant.shed || line.fresh == 0 {
            return None;
        }
        let calls = (0..line.calls.len()).rev().filter_map(|at| Some(line.calls.nth(at)?.1));
        calls
            .into_iter()
            .find(|call| self.waiters.get(*call).is_some_and(|waiter| waiter.ticket.charged.is_none()))
    }

    /// Takes a call out of the queue, to be told that it was shed.
    pub(super) fn displace(&mut self, now: Instant, call: WaiterId) {
        let position = self.position(call).min(COUNTED);
        let why = self.explain(now, call);
        let Some(waiter) = self.take(call) else { return };
        self.place(waiter.tenant, waiter.ticket.lane);
        let retry_after = Some(self.pace().expected(self.waiters.len()));
        let refusal = Refusal { reason: Reason::Shed, position, retry_after, why, most: None };
        self.displaced.push((waiter.who, refusal));
    }
}
