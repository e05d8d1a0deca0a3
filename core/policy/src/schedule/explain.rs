//! Explanations of waits: which rule keeps a call waiting, and since when.

use std::time::Instant;

use super::{Candidate, Rule, Scheduler, Selector, Ticket, WaitExplanation, WaiterId};

impl<W> Selector<'_, W> {
    /// Returns the first rule that a call does not satisfy, and when time alone will satisfy the
    /// rule. The time is `None` if that depends on other events. Returns `None` if the call is
    /// admissible. `id` is `None` for a call that is not waiting.
    ///
    /// The rules are checked in this order: whether the upstream accepts calls, the tenant's own
    /// limits, the target's limits, and the resources that are reserved for another call.
    pub(super) fn first_unmet_rule(
        &mut self,
        call: &Candidate<'_>,
        id: Option<WaiterId>,
    ) -> Option<(Rule, Option<Instant>)> {
        let (now, needs) = (self.now, &call.needs);
        let upstream = &mut self.capacity.upstream;
        let closed = match upstream.ready(now, needs.has_failed) {
            Err(at) => Some(Some(at)),
            Ok(()) => upstream.has_no_replica().then(|| upstream.closed_until(now)),
        };
        if let Some(until) = closed {
            return Some((self.capacity.closed_rule(), until));
        }
        let tenant = self.queue.tenants.get(call.tenant)?;
        if tenant.is_capped() {
            return Some((Rule::TenantCap, None));
        }
        if tenant.is_held() {
            return Some((Rule::TenantShare, None));
        }
        if let Some(at) = self.own_tokens_at(tenant, call.ticket.lane, needs.tenant_tokens) {
            return Some((Rule::TenantTokens, Some(at)));
        }
        if let Some(rule) = self.capacity.limits.shortage {
            return Some((rule, None));
        }
        let available = self.capacity.available(now);
        if let Some(lack) = self.capacity.lacking(now, call, &available) {
            return Some(lack);
        }
        self.order.reservation.filter(|reservation| Some(reservation.call) != id)?;
        (!self.capacity.fits(call, &self.unreserved(available))).then_some((Rule::Reserved, None))
    }

    /// Returns since when `rule` has kept the call waiting. If that was not recorded, returns when
    /// a call was last admitted, or when this call was queued if none was.
    fn blocked_since(&self, rule: Rule, call: &Candidate<'_>) -> Instant {
        let tenant = self.queue.tenants.get(call.tenant);
        let since = match rule {
            Rule::Turn => Some(call.ticket.queued_at),
            Rule::TenantCap => tenant.and_then(|tenant| tenant.capped.since()),
            Rule::TenantShare => tenant.and_then(|tenant| tenant.held.since()),
            Rule::TenantTokens => tenant.and_then(|tenant| tenant.out_of_tokens.since()),
            Rule::CoolDown | Rule::Outage => self.capacity.upstream.closed_since(),
            rule => self.capacity.blocked[rule as usize].since(),
        };
        // Rules about sizes are recorded for the front only, which may not lack what a small call
        // lacks. In that case, the call has lacked it since the last grant.
        since.or(self.capacity.last_grant).unwrap_or(call.ticket.queued_at)
    }
}

impl<W> Scheduler<W> {
    /// Returns which rule keeps a call waiting now, or `None` if the call is not waiting any more.
    pub fn explain(&mut self, now: Instant, id: WaiterId) -> Option<WaitExplanation> {
        let waiter = self.queue.waiters.get(id)?;
        let (ticket, tenant, needs) = (waiter.ticket.clone(), waiter.tenant, waiter.needs);
        if self.capacity.is_sized() {
            // Updates the reservation.
            let _ = self.selector(now).pick();
        }
        let ahead = self.queue.position(id);
        Some(self.why(now, &Candidate { tenant, ticket: &ticket, needs }, ahead, Some(id)))
    }

    /// Returns which rule keeps a call waiting, since when, and how long it is expected to wait.
    /// `ahead_in_line` is the number of waiting calls of the same tenant and lane that are ahead of
    /// it. `id` is `None` for a call that is not waiting.
    pub(super) fn why(
        &mut self,
        now: Instant,
        call: &Candidate<'_>,
        ahead_in_line: usize,
        id: Option<WaiterId>,
    ) -> WaitExplanation {
        let Ticket { queued_at, .. } = *call.ticket;
        let mut selector = self.selector(now);
        let (rule, ready) = selector.first_unmet_rule(call, id).unwrap_or((Rule::Turn, None));
        let blocked_since = selector.blocked_since(rule, call);
        let waited = now.saturating_duration_since(queued_at);
        let ready = ready.map(|at| at.saturating_duration_since(now));
        // Zero means that nothing whose end is predicted delays the call. Something else may.
        let expected = self.expected_wait(now, call, ahead_in_line);
        let expected = expected.filter(|wait| !wait.is_zero() || rule == Rule::Turn);
        WaitExplanation {
            rule,
            origin: self.capacity.budgets.origin(rule),
            since: waited.min(now.saturating_duration_since(blocked_since)),
            waited,
            ahead: self.queue.calls_ahead(call, ahead_in_line),
            expected: expected.map(|wait| wait.max(ready.unwrap_or_default())).or(ready),
        }
    }
}
