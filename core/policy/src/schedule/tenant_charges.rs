//! Charges each attempt to its tenant. The charge is a cost in fair queueing, and tokens of the
//! tenant's own limit of tokens per minute (`tpm`).

use std::time::Instant;

use super::{Candidate, GrantId, Queue, TenantId, Ticket};
use crate::Lane;
use crate::fairness::{DispatchOrder, Tag};

/// The charge of one attempt to its tenant: a cost in fair queueing, and tokens of the tenant's own
/// limit of tokens per minute.
#[derive(Debug)]
pub(super) struct TenantCharge {
    pub(super) tenant: TenantId,
    pub(super) lane: Lane,
    /// The start tag in fair queueing. For a retry, that of the first dispatch of the call.
    pub(super) tag: Tag,
    /// The cost in fair queueing: the estimate, or the actual cost once it is known.
    pub(super) cost: f64,
    /// Whether the attempt advances virtual time when it ends, because it did not when it was
    /// dispatched. See [`VirtualTime::dispatch`](crate::fairness::VirtualTime::dispatch).
    moves_by_work: bool,
    /// The tokens charged to the tenant's own limit of tokens per minute. Zero if it has none.
    tenant_tokens: u64,
}

impl<W> Queue<W> {
    /// Charges an attempt to its tenant and counts it as in flight. `out_of_turn` is `true` if the
    /// call is dispatched because of reserved slots (a floor) or a debt of its tenant in fair
    /// queueing, instead of by its turn.
    pub(super) fn charge(&mut self, now: Instant, call: &Candidate<'_>, out_of_turn: bool) -> TenantCharge {
        let Candidate { tenant: id, ticket, .. } = *call;
        let Ticket { lane, cost, .. } = *ticket;
        let (tag, moves_by_work, tenant_tokens) = (Tag::default(), false, 0);
        let mut charge = TenantCharge { tenant: id, lane, tag, cost, moves_by_work, tenant_tokens };
        let Some(tenant) = self.tenants.get_mut(id) else { return charge };
        tenant.in_flight += 1;
        tenant.peak = tenant.peak.max(tenant.in_flight);
        tenant.capped.set(now, tenant.in_flight >= tenant.cap);
        if let Some(bucket) = &mut tenant.tokens {
            charge.tenant_tokens = bucket.settle(now, 0, ticket.demand.total());
        }
        let line = &mut tenant.lines[lane as usize];
        let entry = || self.lanes.lane(lane).entry(cost / tenant.weight);
        let since = line.position.map_or_else(entry, |position| position.since);
        charge.tag = ticket.queue_tag.unwrap_or_else(|| line.account.start(since));
        // A call of a line in debt may have overtaken calls that do not fit.
        let out_of_turn = out_of_turn || self.lanes.lane(lane).time.is_in_debt(&line.account);
        let first = if out_of_turn { self.lanes.lane(lane).first_tag_but(id) } else { None };
        let place = DispatchOrder { tag: charge.tag, since, first };
        let ready = self.lanes.lane_mut(lane);
        charge.moves_by_work = ready.time.dispatch(&mut line.account, place, cost, tenant.weight);
        ready.count(now, line);
        charge
    }

    /// Replaces the cost of an attempt in fair queueing by `cost`.
    pub(super) fn correct(&mut self, charge: &mut TenantCharge, cost: f64) {
        let correction = cost - std::mem::replace(&mut charge.cost, cost);
        if let Some(tenant) = self.tenants.get_mut(charge.tenant) {
            tenant.lines[charge.lane as usize].account.correct(correction, tenant.weight);
        }
    }

    /// Replaces the tokens that an attempt was charged to the tenant's own limit of tokens per
    /// minute by `used`. Returns `false` if the tenant has no such limit.
    pub(super) fn correct_tokens(&mut self, now: Instant, charge: &mut TenantCharge, used: u64) -> bool {
        let tenant_tokens = self.tenants.get_mut(charge.tenant).and_then(|tenant| tenant.tokens.as_mut());
        let Some(tenant_tokens) = tenant_tokens else { return false };
        charge.tenant_tokens = tenant_tokens.settle(now, charge.tenant_tokens, used);
        true
    }

    /// Stops counting an attempt as in flight for its tenant and lane. Refunds the tenant's own
    /// tokens unless the attempt was `sent`. `slots` is the current number of slots.
    ///
    /// Returns `true` if waiting calls of the tenant in other lanes may now be admissible, because
    /// the tenant was at its slot cap or has its own limit of tokens per minute.
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
            let weights = self.lanes.lane(lane).weight + tenant.weight;
            self.lanes.lane_mut(lane).time.serve(charge.cost, weights);
        }
        let frees_all = tenant.is_capped() || tenant.tokens.is_some();
        tenant.in_flight -= 1;
        tenant.capped.set(now, tenant.in_flight >= tenant.cap);
        if let Some(tenant_tokens) = tenant.tokens.as_mut().filter(|_| !sent) {
            tenant_tokens.bucket.refund(now, charge.tenant_tokens);
        }
        frees_all
    }
}
