//! What a call is told at the door: go, wait, or no.

use std::time::{Duration, Instant};

use super::claim::Claim;
use super::ids::TenantId;
use super::order::LineHead;
use super::shed::Space;
use super::why::{Rule, Why};
use super::{Grant, Refusal, Scheduler, Ticket};
use crate::config::OnFull;
use crate::context::Lane;
use crate::error::Reason;

/// A no, before it says why.
struct No {
    reason: Reason,
    retry_after: Option<Duration>,
    rule: Option<Rule>,
    expected: Option<Duration>,
    most: Option<u64>,
}

impl No {
    fn new(reason: Reason, retry_after: Option<Duration>) -> Self {
        Self { reason, retry_after, rule: None, expected: None, most: None }
    }
}

impl<W> Scheduler<W> {
    /// Admits the call at once, if it may go now; `Ok(None)`: it would have to wait.
    ///
    /// # Errors
    /// The refusal, where it may not even wait.
    pub fn try_admit(&mut self, now: Instant, ticket: &Ticket) -> Result<Option<Grant>, Refusal> {
        self.tick(now);
        let id = self.tenants.find(&ticket.tenant, &self.lanes, now);
        // Where nothing is bounded nobody asks how much it takes.
        let claim = if self.is_sized() { self.claim(ticket) } else { Claim::default() };
        let oversize = self.oversize(ticket, &claim);
        if oversize.is_none() && self.may_go(now, id, ticket, &claim) {
            let grant = self.grant(now, id, ticket, claim.kind, false);
            // It may have filled the tenant's cap while others of its calls wait.
            self.place_after(id, ticket.lane);
            return Ok(Some(grant));
        }
        let no = match oversize.filter(|_| !self.draining) {
            Some((rule, most)) => {
                No { rule: Some(rule), most: Some(most), ..No::new(Reason::TooLarge, None) }
            }
            None => match self.objection(now, id, ticket, &claim) {
                Some(no) => no,
                None => return Ok(None),
            },
        };
        Err(self.refusal(now, id, ticket, &claim, no))
    }

    fn may_go(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let free = !self.draining && ticket.deadline > now && self.has_slot() && !tenant.is_capped();
        let fits = claim.own <= tenant.own_room(now);
        let first =
            tenant.lines[ticket.lane as usize].calls.is_empty() || self.overtakes(now, id, ticket.lane);
        if !(free && fits && first && self.passes(now, claim)) {
            return false;
        }
        let ready = self.cooldown.ready(now, self.upstream.slots()).is_ok();
        if !ready {
            self.gap.stop(now);
        }
        ready
    }

    /// At a pool a line may wait for other replicas than a new call does: that one need not queue in order to overtake it.
    fn overtakes(&self, now: Instant, id: TenantId, lane: Lane) -> bool {
        let Some(pool) = self.upstream.pool() else { return false };
        let holds_up = |head: &LineHead| head.aged && pool.has_slot_for(head.claim.kind, self.in_flight);
        self.line_head(now, id, lane).is_some_and(|head| !holds_up(&head))
    }

    /// Whether nobody who waits goes before it, and it fits.
    fn passes(&mut self, now: Instant, claim: &Claim) -> bool {
        if !self.is_sized() {
            return self.lanes.is_empty();
        }
        self.unpark(now);
        // Whoever could go is let go first, by the driver; who could not is overtaken, as in the queue.
        let alone = self.lanes.is_empty();
        if !alone && self.pick(now).is_some() {
            return false;
        }
        let rooms = self.rooms(now);
        let rooms = if alone { rooms } else { self.less_held(rooms) };
        rooms.fit(claim)
    }

    /// Why it may not even wait.
    fn objection(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim) -> Option<No> {
        let waiting = self.tenants.get(id)?.waiting;
        if self.draining {
            return Some(No::new(Reason::Draining, None));
        }
        if ticket.deadline <= now {
            let after = self.pace.expected(self.in_flight + waiting);
            return Some(No::new(Reason::Deadline, Some(after)));
        }
        let cooling = self.cooldown.until().filter(|until| *until > now);
        let closed =
            cooling.map(|until| No::new(self.closed_reason(), Some(until.saturating_duration_since(now))));
        if cooling.is_some_and(|until| until > ticket.deadline) {
            return closed;
        }
        if ticket.charged.is_some() {
            return None;
        }
        if self.settings.on_full == OnFull::Refuse {
            return Some(closed.or_else(|| self.nobody(now)).unwrap_or_else(|| self.full(now, id, claim)));
        }
        if let Space::Full = self.space(id, ticket.lane) {
            return Some(No::new(Reason::QueueFull, Some(self.pace.expected(waiting + 1))));
        }
        let (wait, over) = self.too_late(now, id, ticket, claim)?;
        let after = over.clamp(Duration::from_secs(1), Duration::from_secs(60));
        Some(No { expected: Some(wait), ..No::new(Reason::PredictedWait, Some(after)) })
    }

    /// At a pool that has nobody in the choice. A deadline says nothing there: somebody may be back before, as well as later.
    fn nobody(&self, now: Instant) -> Option<No> {
        self.upstream.pool().filter(|pool| pool.is_closed())?;
        let until = self.closed_until(now).unwrap_or(now + Duration::from_secs(1));
        Some(No::new(self.closed_reason(), Some(until.saturating_duration_since(now))))
    }

    /// At a target that does not queue.
    fn full(&mut self, now: Instant, id: TenantId, claim: &Claim) -> No {
        match self.obstacle(now, id, claim, None) {
            Some((rule, at)) if rule.is_budget() => {
                let after = at.map_or(self.pace.expected(1), |at| at.saturating_duration_since(now));
                No { rule: Some(rule), ..No::new(Reason::NoBudget, Some(after)) }
            }
            _ => No::new(Reason::NoSlot, Some(self.pace.expected(1))),
        }
    }

    fn refusal(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim, no: No) -> Refusal {
        let (position, in_line) = self
            .tenants
            .get(id)
            .map_or((0, 0), |tenant| (tenant.waiting, tenant.lines[ticket.lane as usize].calls.len()));
        let why = self.why(now, id, ticket.lane, ticket.queued_at, in_line, claim, None);
        let why = Why { rule: no.rule.unwrap_or(why.rule), expected: no.expected.or(why.expected), ..why };
        Refusal { reason: no.reason, position, retry_after: no.retry_after, why: Some(why), most: no.most }
    }
}
