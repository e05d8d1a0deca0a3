//! What a call is told at the door: go, wait, or no.

use std::time::{Duration, Instant};

use super::available::Available;
use super::ids::TenantId;
use super::reason::Reason;
use super::requirements::Requirements;
use super::rule::{Rule, Why};
use super::shedding::Space;
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
        let id = self.queue.tenant(&ticket.tenant, now);
        // Where nothing is bounded nobody asks how much it takes.
        let requirements = if self.capacity.is_sized() {
            self.capacity.requirements(ticket)
        } else {
            Requirements::default()
        };
        let oversize = self.capacity.oversize(ticket, &requirements);
        if oversize.is_none()
            && let Some(available) = self.may_go(now, id, ticket, &requirements)
        {
            let grant = self.grant(now, id, ticket, requirements.kind, available.kept, false);
            // It may have filled the tenant's cap while others of its calls wait.
            self.queue.place_after(id, ticket.lane);
            return Ok(Some(grant));
        }
        let no = match oversize.filter(|_| !self.draining) {
            Some((rule, most)) => {
                No { rule: Some(rule), most: Some(most), ..No::new(Reason::TooLarge, None) }
            }
            None => match self.objection(now, id, ticket, &requirements) {
                Some(no) => no,
                None => return Ok(None),
            },
        };
        Err(self.refusal(now, id, ticket, &requirements, no))
    }

    /// What it would take of, where it may go.
    fn may_go(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        requirements: &Requirements,
    ) -> Option<Available> {
        let ready = self.capacity.upstream.ready(now, ticket.has_failed);
        if self.draining || ticket.deadline <= now {
            return None;
        }
        let available = self.selector(now).available_to(id, ticket, requirements)?;
        if ready.is_err() {
            self.gap.stop(now);
            return None;
        }
        Some(available)
    }

    /// Why it may not even wait.
    fn objection(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        requirements: &Requirements,
    ) -> Option<No> {
        let waiting = self.queue.tenants.get(id)?.waiting;
        if self.draining {
            return Some(No::new(Reason::Draining, None));
        }
        if ticket.deadline <= now {
            let after = self.predictor.retry_after(&self.capacity, self.capacity.in_flight() + waiting);
            return Some(No::new(Reason::Deadline, Some(after)));
        }
        let cooling = self.capacity.upstream.cooling_until().filter(|until| *until > now);
        let closed =
            cooling.map(|until| No::new(self.closed_reason(), Some(until.saturating_duration_since(now))));
        if cooling.is_some_and(|until| until > ticket.deadline) {
            return closed;
        }
        if ticket.charged.is_some() {
            return None;
        }
        if self.settings.on_full == OnFull::Refuse {
            let full = |this: &mut Self| this.full(now, id, ticket, requirements);
            return Some(closed.or_else(|| self.nobody(now)).unwrap_or_else(|| full(self)));
        }
        if let Space::Full = self.queue.space(id, ticket.lane) {
            return Some(No::new(
                Reason::QueueFull,
                Some(self.predictor.retry_after(&self.capacity, waiting + 1)),
            ));
        }
        let late = self.predictor.too_late(now, &self.queue, &self.capacity, id, ticket, requirements)?;
        let after = late.over.clamp(Duration::from_secs(1), Duration::from_secs(60));
        Some(No { expected: Some(late.wait), ..No::new(Reason::PredictedWait, Some(after)) })
    }

    /// At a pool that has nobody in the choice. A deadline says nothing there: somebody may be back before, as well as later.
    fn nobody(&self, now: Instant) -> Option<No> {
        let upstream = &self.capacity.upstream;
        if !upstream.has_no_replica() {
            return None;
        }
        let until = upstream.closed_until(now).unwrap_or(now + Duration::from_secs(1));
        Some(No::new(self.closed_reason(), Some(until.saturating_duration_since(now))))
    }

    /// At a target that does not queue.
    fn full(&mut self, now: Instant, id: TenantId, ticket: &Ticket, requirements: &Requirements) -> No {
        match self.selector(now).obstacle(id, ticket, requirements, None) {
            Some((rule, at)) if rule.is_budget() => {
                let after = at.map_or_else(
                    || self.predictor.retry_after(&self.capacity, 1),
                    |at| at.saturating_duration_since(now),
                );
                No { rule: Some(rule), ..No::new(Reason::NoBudget, Some(after)) }
            }
            _ => No::new(Reason::NoSlot, Some(self.predictor.retry_after(&self.capacity, 1))),
        }
    }

    fn refusal(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        requirements: &Requirements,
        no: No,
    ) -> Refusal {
        let (position, in_line) = self
            .queue
            .tenants
            .get(id)
            .map_or((0, 0), |tenant| (tenant.waiting, tenant.lines[ticket.lane as usize].calls.len()));
        let why = self.why(now, id, ticket, in_line, requirements, None);
        let why = Why { rule: no.rule.unwrap_or(why.rule), expected: no.expected.or(why.expected), ..why };
        Refusal { reason: no.reason, position, retry_after: no.retry_after, why: Some(why), most: no.most }
    }
}
