//! What a call is told at the door: go, wait, or no.

use std::time::{Duration, Instant};

use super::claim::Claim;
use super::ids::TenantId;
use super::reason::Reason;
use super::rooms::Rooms;
use super::shed::Space;
use super::why::{Rule, Why};
use super::{Grant, Refusal, Scheduler, Ticket};
use crate::config::OnFull;

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
        if oversize.is_none()
            && let Some(rooms) = self.may_go(now, id, ticket, &claim)
        {
            let grant = self.grant(now, id, ticket, claim.kind, rooms.kept, false);
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

    /// What it would take of, where it may go.
    fn may_go(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim) -> Option<Rooms> {
        let ready = self.cooldown.ready(now, self.upstream.slots(), ticket.has_failed);
        let tenant = self.tenants.get(id)?;
        let own = tenant.own_room(now);
        let free = !self.draining && ticket.deadline > now && self.has_slot() && !tenant.is_capped();
        let line = &tenant.lines[ticket.lane as usize];
        let first = line.calls.is_empty();
        // Nor need a probe queue behind calls that have failed here.
        let leads = self.cooldown.is_probing() && line.calls.least().is_some_and(|least| least.has_failed);
        // At a pool a line may wait for other replicas than a new call does: that one need not queue in order to overtake it.
        if !(free && claim.own <= own && (first || leads || self.upstream.pool().is_some())) {
            return None;
        }
        let mut rooms = self.left_for_new(now)?;
        if !first {
            let head = self.line_head(now, id, ticket.lane)?;
            rooms = if head.aged { self.behind(&head, &rooms, own)? } else { rooms };
        }
        if !self.fits(claim, ticket, &rooms) {
            return None;
        }
        if ready.is_err() {
            self.gap.stop(now);
            return None;
        }
        Some(rooms)
    }

    /// What those who wait leave to one that does not. `None`: one of them goes before it.
    fn left_for_new(&mut self, now: Instant) -> Option<Rooms> {
        // While a target is probed, not every call that has a slot may go.
        if !self.is_sized() && !self.cooldown.is_probing() {
            return self.lanes.is_empty().then_some(Rooms::UNBOUNDED);
        }
        self.unpark(now);
        // Whoever could go is let go first, by the driver; who could not is overtaken, as in the queue.
        let alone = self.lanes.is_empty();
        if !alone && self.pick(now).is_some() {
            return None;
        }
        let rooms = self.rooms(now);
        Some(if alone { rooms } else { self.less_held(rooms) })
    }

    /// Why it may not even wait.
    fn objection(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim) -> Option<No> {
        let waiting = self.tenants.get(id)?.waiting;
        if self.draining {
            return Some(No::new(Reason::Draining, None));
        }
        if ticket.deadline <= now {
            let after = self.pace().expected(self.in_flight + waiting);
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
            let full = |this: &mut Self| this.full(now, id, ticket, claim);
            return Some(closed.or_else(|| self.nobody(now)).unwrap_or_else(|| full(self)));
        }
        if let Space::Full = self.space(id, ticket.lane) {
            return Some(No::new(Reason::QueueFull, Some(self.pace().expected(waiting + 1))));
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
    fn full(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim) -> No {
        match self.obstacle(now, id, ticket, claim, None) {
            Some((rule, at)) if rule.is_budget() => {
                let after = at.map_or(self.pace().expected(1), |at| at.saturating_duration_since(now));
                No { rule: Some(rule), ..No::new(Reason::NoBudget, Some(after)) }
            }
            _ => No::new(Reason::NoSlot, Some(self.pace().expected(1))),
        }
    }

    fn refusal(&mut self, now: Instant, id: TenantId, ticket: &Ticket, claim: &Claim, no: No) -> Refusal {
        let (position, in_line) = self
            .tenants
            .get(id)
            .map_or((0, 0), |tenant| (tenant.waiting, tenant.lines[ticket.lane as usize].calls.len()));
        let why = self.why(now, id, ticket, in_line, claim, None);
        let why = Why { rule: no.rule.unwrap_or(why.rule), expected: no.expected.or(why.expected), ..why };
        Refusal { reason: no.reason, position, retry_after: no.retry_after, why: Some(why), most: no.most }
    }
}
