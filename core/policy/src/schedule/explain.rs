//! Explanations: which rule keeps a call waiting, and since when.

use std::time::Instant;

use super::ids::{TenantId, WaiterId};
use super::requirements::Requirements;
use super::rule::{Rule, Why};
use super::select::Selector;
use super::span::Span;
use super::{Scheduler, Ticket};

/// Since when each rule has kept the next call from being dispatched.
#[derive(Debug, Default)]
pub(super) struct BlockedSince([Span; Rule::COUNT]);

impl BlockedSince {
    pub(super) fn set(&mut self, now: Instant, rule: Rule, holds: bool) {
        self.0[rule as usize].set(now, holds);
    }

    pub(super) fn since(&self, rule: Rule) -> Option<Instant> {
        self.0[rule as usize].since()
    }
}

/// The rules about what a call requires.
pub(super) const SIZES: [Rule; 8] = [
    Rule::Requests,
    Rule::Tokens,
    Rule::InputTokens,
    Rule::OutputTokens,
    Rule::RequestsPerDay,
    Rule::TokensPerDay,
    Rule::Kv,
    Rule::Replicas,
];

impl<W> Selector<'_, W> {
    /// Returns the first rule that a call does not satisfy, and when time alone will satisfy it, if
    /// it does. `None` if the call is admissible.
    ///
    /// The order is: closed upstream, the tenant's own limits, the target's limits.
    pub(super) fn obstacle(
        &mut self,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
        call: Option<WaiterId>,
    ) -> Option<(Rule, Option<Instant>)> {
        let now = self.now;
        if let Err(at) = self.capacity.upstream.ready(now, needs.has_failed) {
            return Some((self.capacity.closed_rule(), Some(at)));
        }
        if self.capacity.upstream.has_no_replica() {
            return Some((self.capacity.closed_rule(), self.capacity.upstream.closed_until(now)));
        }
        let tenant = self.queue.tenants.get(id)?;
        if tenant.is_capped() {
            return Some((Rule::TenantCap, None));
        }
        if let Some(tenant_tokens) =
            tenant.tokens.as_ref().filter(|tenant_tokens| needs.tenant_tokens > tenant_tokens.room(now))
        {
            return Some((Rule::TenantTokens, Some(tenant_tokens.ready_at(now, needs.tenant_tokens))));
        }
        if let Some(rule) = self.capacity.shortage() {
            return Some((rule, None));
        }
        let available = self.capacity.available(now);
        if let Some(lack) = self.capacity.lacking(now, needs, ticket, &available) {
            return Some(lack);
        }
        self.order.reservation.filter(|reservation| Some(reservation.call) != call)?;
        (!self.capacity.fits(needs, ticket, &self.less_reserved(available))).then_some((Rule::Held, None))
    }

    /// Returns since when a rule has kept a tenant's calls waiting.
    fn blocked_since(&self, rule: Rule, id: TenantId, queued_at: Instant) -> Instant {
        let tenant = self.queue.tenants.get(id);
        let since = match rule {
            Rule::Turn => Some(queued_at),
            Rule::TenantCap => tenant.and_then(|tenant| tenant.capped.since()),
            Rule::TenantTokens => tenant.and_then(|tenant| tenant.out_of_tokens.since()),
            Rule::CoolDown | Rule::Outage => self.capacity.upstream.closed_since(),
            rule => self.capacity.blocked.since(rule),
        };
        // The front may not lack what a small call lacks. In that case, the call has lacked it
        // since the last grant.
        since.or(self.capacity.last_grant).unwrap_or(queued_at)
    }
}

impl<W> Scheduler<W> {
    /// Returns why a call waits now, or `None` if it does not wait any more.
    pub fn explain(&mut self, now: Instant, call: WaiterId) -> Option<Why> {
        let waiter = self.queue.waiters.get(call)?;
        let (tenant, ticket, needs) = (waiter.tenant, waiter.ticket.clone(), waiter.needs);
        if self.capacity.is_sized() {
            // Updates the reservation.
            let _ = self.selector(now).pick();
        }
        let ahead = self.queue.position(call);
        Some(self.why(now, tenant, &ticket, ahead, &needs, Some(call)))
    }

    /// Returns what keeps a call waiting that has `own_ahead` calls of its line ahead.
    pub(super) fn why(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        own_ahead: usize,
        needs: &Requirements,
        call: Option<WaiterId>,
    ) -> Why {
        let Ticket { lane, queued_at, .. } = *ticket;
        let mut selector = self.selector(now);
        let (rule, ready) = selector.obstacle(id, ticket, needs, call).unwrap_or((Rule::Turn, None));
        let blocked_since = selector.blocked_since(rule, id, queued_at);
        let waited = now.saturating_duration_since(queued_at);
        let weight = self.queue.tenants.get(id).map_or(1.0, |tenant| tenant.weight);
        let ready = ready.map(|at| at.saturating_duration_since(now));
        let expected = self.predictor.wait(now, &self.queue, &self.capacity, (id, lane), own_ahead, needs);
        Why {
            rule,
            since: waited.min(now.saturating_duration_since(blocked_since)),
            waited,
            ahead: self.queue.load.ahead(lane, own_ahead, weight),
            expected: expected.map(|wait| wait.max(ready.unwrap_or_default())).or(ready),
        }
    }
}
