//! Charges to tenants: the cost in fair queueing, and the tenant's own tokens.

use std::time::Instant;

use super::queue::Queue;
use super::{GrantId, Ticket};
use crate::Lane;
use crate::fairness::{DispatchOrder, Tag};

use super::ids::TenantId;

/// What an attempt is charged to its tenant.
#[derive(Debug)]
pub(super) struct TenantCharge {
    pub(super) tenant: TenantId,
    pub(super) lane: Lane,
    /// The start tag; for a retry, that of the call's first dispatch.
    pub(super) tag: Tag,
    /// The cost in fair queueing.
    pub(super) cost: f64,
    /// Whether virtual time advances when the work is done
    /// ([`VirtualTime::dispatch`](crate::fairness::VirtualTime::dispatch)).
    moves_by_work: bool,
    /// Tokens charged to the tenant's own budget.
    tenant_tokens: u64,
}

impl<W> Queue<W> {
    /// Charges an attempt that is dispatched. `out_of_turn` is `true` if fair queueing would have
    /// dispatched another line first.
    pub(super) fn charge(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        out_of_turn: bool,
    ) -> TenantCharge {
        let Ticket { lane, cost, .. } = *ticket;
        let mut charge = TenantCharge {
            tenant: id,
            lane,
            tag: Tag::default(),
            cost,
            moves_by_work: false,
            tenant_tokens: 0,
        };
        let Some(tenant) = self.tenants.get_mut(id) else { return charge };
        tenant.in_flight += 1;
        tenant.peak = tenant.peak.max(tenant.in_flight);
        tenant.capped.set(now, tenant.in_flight >= tenant.cap);
        if let Some(bucket) = &mut tenant.tokens {
            charge.tenant_tokens = bucket.settle(now, 0, ticket.demand.total());
        }
        let line = &mut tenant.lines[lane as usize];
        let entry = || self.lanes.entry(lane, cost / tenant.weight);
        let since = line.position.map_or_else(entry, |position| position.since);
        charge.tag = ticket.charged.unwrap_or_else(|| line.account.start(since));
        // A call of a line in debt may have overtaken calls that do not fit.
        let out_of_turn = out_of_turn || self.lanes.time(lane).is_owed(&line.account);
        let first = if out_of_turn { self.lanes.first_tag_but(lane, id) } else { None };
        let order = DispatchOrder { tag: charge.tag, since, first };
        let time = self.lanes.time_mut(lane);
        charge.moves_by_work = time.dispatch(&mut line.account, order, cost, tenant.weight);
        self.lanes.count(now, lane, line);
        charge
    }

    /// Corrects the cost of an attempt in fair queueing.
    pub(super) fn correct(&mut self, charge: &mut TenantCharge, cost: f64) {
        let correction = cost - std::mem::replace(&mut charge.cost, cost);
        if let Some(tenant) = self.tenants.get_mut(charge.tenant) {
            let account = &mut tenant.lines[charge.lane as usize].account;
            self.lanes.time_mut(charge.lane).correct(account, correction, tenant.weight);
        }
    }

    /// Corrects the tokens charged to the tenant's own budget. Returns `true` if the tenant has
    /// one.
    pub(super) fn correct_tokens(&mut self, now: Instant, charge: &mut TenantCharge, used: u64) -> bool {
        let tenant_tokens = self.tenants.get_mut(charge.tenant).and_then(|tenant| tenant.tokens.as_mut());
        let Some(tenant_tokens) = tenant_tokens else { return false };
        charge.tenant_tokens = tenant_tokens.settle(now, charge.tenant_tokens, used);
        true
    }

    /// Ends an attempt, so that its tenant holds one slot less. Refunds the tenant's own tokens
    /// unless the attempt was sent.
    ///
    /// Returns `true` if other lines of the tenant may become ready by it.
    pub(super) fn release(
        &mut self,
        now: Instant,
        id: GrantId,
        charge: &TenantCharge,
        slots: usize,
        sent: bool,
    ) -> bool {
        let lane = charge.lane;
        self.lanes.release(now, lane, id, slots);
        let Some(tenant) = self.tenants.get_mut(charge.tenant) else { return false };
        if charge.moves_by_work {
            let weights = self.lanes.weight(lane) + tenant.weight;
            self.lanes.time_mut(lane).serve(charge.cost, weights);
        }
        let frees_all = tenant.is_capped() || tenant.tokens.is_some();
        tenant.in_flight -= 1;
        tenant.capped.set(now, tenant.in_flight >= tenant.cap);
        if let Some(tenant_tokens) = tenant.tokens.as_mut().filter(|_| !sent) {
            tenant_tokens.give(now, charge.tenant_tokens);
        }
        frees_all
    }
}
