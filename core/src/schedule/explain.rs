//! Which rule stands in a call's way, and since when.

use std::time::Instant;

use super::claim::Claim;
use super::ids::{TenantId, WaiterId};
use super::pool::Pool;
use super::rooms::Rooms;
use super::span::Span;
use super::why::{Rule, Why};
use super::{COUNTED, Scheduler, Ticket};

/// Since when each rule has stood in the way of whoever was to go next.
#[derive(Debug, Default)]
pub(super) struct Stood([Span; Rule::COUNT]);

impl Stood {
    pub(super) fn set(&mut self, now: Instant, rule: Rule, holds: bool) {
        self.0[rule as usize].set(now, holds);
    }

    pub(super) fn since(&self, rule: Rule) -> Option<Instant> {
        self.0[rule as usize].since()
    }
}

/// The rules that are about what a call takes.
const SIZES: [Rule; 8] = [
    Rule::Requests,
    Rule::Tokens,
    Rule::InputTokens,
    Rule::OutputTokens,
    Rule::RequestsPerDay,
    Rule::TokensPerDay,
    Rule::Kv,
    Rule::Replicas,
];

impl<W> Scheduler<W> {
    /// Why a call waits now: its tenant's own rules first, then the target's. `None`: it does not wait any more.
    pub fn explain(&mut self, now: Instant, call: WaiterId) -> Option<Why> {
        let waiter = self.waiters.get(call)?;
        let (tenant, ticket, claim) = (waiter.tenant, waiter.ticket.clone(), waiter.claim);
        if self.is_sized() {
            // What is held, is held as of now.
            let _ = self.pick(now);
        }
        let ahead = self.position(call);
        Some(self.why(now, tenant, &ticket, ahead, &claim, Some(call)))
    }

    pub(super) fn why(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        own_ahead: usize,
        claim: &Claim,
        call: Option<WaiterId>,
    ) -> Why {
        let Ticket { lane, queued_at, .. } = *ticket;
        let (rule, ready) = self.obstacle(now, id, ticket, claim, call).unwrap_or((Rule::Turn, None));
        let waited = now.saturating_duration_since(queued_at);
        let weight = self.tenants.get(id).map_or(1.0, |tenant| tenant.weight);
        let ready = ready.map(|at| at.saturating_duration_since(now));
        let expected = self.predicted(now, id, lane, own_ahead, claim);
        Why {
            rule,
            since: waited.min(now.saturating_duration_since(self.stood_since(rule, id, queued_at))),
            waited,
            ahead: self.load.ahead(lane, own_ahead, weight),
            expected: expected.map(|wait| wait.max(ready.unwrap_or_default())).or(ready),
        }
    }

    /// The first rule that a call does not satisfy, and until when, where time alone will mend it. `None`: it is admissible.
    pub(super) fn obstacle(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        claim: &Claim,
        call: Option<WaiterId>,
    ) -> Option<(Rule, Option<Instant>)> {
        if let Err(at) = self.cooldown.ready(now, self.upstream.slots(), claim.has_failed) {
            return Some((self.closed_rule(), Some(at)));
        }
        if self.upstream.pool().is_some_and(Pool::is_closed) {
            return Some((self.closed_rule(), self.closed_until(now)));
        }
        let tenant = self.tenants.get(id)?;
        if tenant.is_capped() {
            return Some((Rule::TenantCap, None));
        }
        if let Some(own) = tenant.own.as_ref().filter(|own| claim.own > own.room(now)) {
            return Some((Rule::TenantTokens, Some(own.ready_at(now, claim.own))));
        }
        if let Some(rule) = self.lack() {
            return Some((rule, None));
        }
        let rooms = self.rooms(now);
        if let Some(lack) = self.lacks(now, claim, ticket, &rooms) {
            return Some(lack);
        }
        self.hold.filter(|hold| Some(hold.call) != call)?;
        (!self.fits(claim, ticket, &self.less_held(rooms))).then_some((Rule::Held, None))
    }

    /// What a call lacks of what is there, held or not.
    fn lacks(
        &self,
        now: Instant,
        claim: &Claim,
        ticket: &Ticket,
        rooms: &Rooms,
    ) -> Option<(Rule, Option<Instant>)> {
        if rooms.of(claim).is_none() {
            return Some((Rule::Replicas, None));
        }
        if !self.has_memory(claim, ticket, rooms) {
            return Some((Rule::Kv, None));
        }
        self.stock.lacks(now, &claim.need)
    }

    /// Notes what stands in the way of the front, where nobody can go though slots are free.
    pub(super) fn note_lack(&mut self, now: Instant, rooms: &Rooms) {
        if !self.is_sized() {
            return;
        }
        let front = self.front(now).and_then(|(lane, tenant)| self.line_head(now, tenant, lane));
        let lack = front.and_then(|head| {
            let ticket = &self.waiters.get(head.call)?.ticket;
            self.lacks(now, &head.claim, ticket, rooms)
        });
        let lack = lack.map(|(rule, _)| rule);
        for rule in SIZES {
            self.stood.set(now, rule, lack == Some(rule));
        }
        self.stood.set(now, Rule::Held, self.hold.is_some());
    }

    fn stood_since(&self, rule: Rule, id: TenantId, queued_at: Instant) -> Instant {
        let tenant = self.tenants.get(id);
        let since = match rule {
            Rule::Turn => Some(queued_at),
            Rule::TenantCap => tenant.and_then(|tenant| tenant.capped.since()),
            Rule::TenantTokens => tenant.and_then(|tenant| tenant.dry.since()),
            Rule::Outage => self.stood.since(Rule::CoolDown),
            rule => self.stood.since(rule),
        };
        // What a small call lacks the front does not, perhaps; then it has lacked it since somebody took it.
        since.or(self.last_grant).unwrap_or(queued_at)
    }

    /// How many of its line stand before a call.
    pub(super) fn position(&self, call: WaiterId) -> usize {
        let Some(waiter) = self.waiters.get(call) else { return COUNTED };
        let line = self.tenants.get(waiter.tenant).map(|tenant| &tenant.lines[waiter.ticket.lane as usize]);
        line.map_or(COUNTED, |line| line.calls.rank(&(waiter.order, call)))
    }
}
