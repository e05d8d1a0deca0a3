//! The decision about a new call: admit it, let it wait, or refuse it.

use std::time::{Duration, Instant};

use super::available::Available;
use super::ids::TenantId;
use super::requirements::Requirements;
use super::rule::{Rule, Why};
use super::shedding::QueueSpace;
use super::{Grant, Refusal, Scheduler, Ticket};
use crate::Reason;
use tidegate_config::OnFull;

/// A refusal without its position and explanation.
struct RefusalCause {
    reason: Reason,
    retry_after: Option<Duration>,
    rule: Option<Rule>,
    expected: Option<Duration>,
    most: Option<u64>,
}

impl RefusalCause {
    fn new(reason: Reason, retry_after: Option<Duration>) -> Self {
        Self { reason, retry_after, rule: None, expected: None, most: None }
    }
}

impl<W> Scheduler<W> {
    /// Admits a call if it may go now. Returns `Ok(None)` if the call has to wait.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the call may not even wait.
    pub fn try_admit(&mut self, now: Instant, ticket: &Ticket) -> Result<Option<Grant>, Refusal> {
        self.tick(now);
        let id = self.queue.tenant(&ticket.tenant, now);
        // Without limits, requirements make no difference.
        let needs =
            if self.capacity.is_sized() { self.capacity.needs(ticket) } else { Requirements::default() };
        let oversize = self.capacity.oversize(ticket, &needs);
        if oversize.is_none()
            && let Some(available) = self.may_go(now, id, ticket, &needs)
        {
            let grant = self.grant(now, id, ticket, needs.class, available.kept, false);
            // The tenant may have reached its cap while other calls of it wait.
            self.queue.place_after(id, ticket.lane);
            return Ok(Some(grant));
        }
        let cause = match oversize.filter(|_| !self.draining) {
            Some((rule, most)) => RefusalCause {
                rule: Some(rule),
                most: Some(most),
                ..RefusalCause::new(Reason::TooLarge, None)
            },
            None => match self.refusal_cause(now, id, ticket, &needs) {
                Some(cause) => cause,
                None => return Ok(None),
            },
        };
        Err(self.refusal(now, id, ticket, &needs, cause))
    }

    /// Returns what is available to the call, or `None` if the call may not go now.
    fn may_go(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
    ) -> Option<Available> {
        let ready = self.capacity.upstream.ready(now, ticket.has_failed);
        if self.draining || ticket.deadline <= now {
            return None;
        }
        let available = self.selector(now).available_to(id, ticket, needs)?;
        if ready.is_err() {
            self.gap.stop(now);
            return None;
        }
        Some(available)
    }

    /// Returns why the call may not even wait.
    fn refusal_cause(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
    ) -> Option<RefusalCause> {
        let waiting = self.queue.tenants.get(id)?.waiting;
        if self.draining {
            return Some(RefusalCause::new(Reason::Draining, None));
        }
        if ticket.deadline <= now {
            let after = self.predictor.retry_after(&self.capacity, self.capacity.in_flight + waiting);
            return Some(RefusalCause::new(Reason::Deadline, Some(after)));
        }
        let cooling = self.capacity.upstream.cooling_until().filter(|until| *until > now);
        let closed = cooling
            .map(|until| RefusalCause::new(self.closed_reason(), Some(until.saturating_duration_since(now))));
        if cooling.is_some_and(|until| until > ticket.deadline) {
            return closed;
        }
        if ticket.charged.is_some() {
            return None;
        }
        if self.settings.on_full == OnFull::Refuse {
            let when_full = |this: &mut Self| this.when_full(now, id, ticket, needs);
            return Some(closed.or_else(|| self.no_replica(now)).unwrap_or_else(|| when_full(self)));
        }
        if let QueueSpace::Full = self.queue.space(id, ticket.lane) {
            return Some(RefusalCause::new(
                Reason::QueueFull,
                Some(self.predictor.retry_after(&self.capacity, waiting + 1)),
            ));
        }
        let late = self.predictor.too_late(now, &self.queue, &self.capacity, id, ticket, needs)?;
        let after = late.over.clamp(Duration::from_secs(1), Duration::from_secs(60));
        Some(RefusalCause {
            expected: Some(late.wait),
            ..RefusalCause::new(Reason::PredictedWait, Some(after))
        })
    }

    /// Refuses a call at a pool in which no replica accepts calls.
    ///
    /// The expected end is not compared with the deadline, because a replica may return earlier or
    /// later.
    fn no_replica(&self, now: Instant) -> Option<RefusalCause> {
        let upstream = &self.capacity.upstream;
        if !upstream.has_no_replica() {
            return None;
        }
        let until = upstream.closed_until(now).unwrap_or(now + Duration::from_secs(1));
        Some(RefusalCause::new(self.closed_reason(), Some(until.saturating_duration_since(now))))
    }

    /// Refuses a call at a target that does not queue.
    fn when_full(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
    ) -> RefusalCause {
        match self.selector(now).obstacle(id, ticket, needs, None) {
            Some((rule, at)) if rule.is_budget() => {
                let after = at.map_or_else(
                    || self.predictor.retry_after(&self.capacity, 1),
                    |at| at.saturating_duration_since(now),
                );
                RefusalCause { rule: Some(rule), ..RefusalCause::new(Reason::NoBudget, Some(after)) }
            }
            _ => RefusalCause::new(Reason::NoSlot, Some(self.predictor.retry_after(&self.capacity, 1))),
        }
    }

    fn refusal(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
        cause: RefusalCause,
    ) -> Refusal {
        let (position, in_line) = self
            .queue
            .tenants
            .get(id)
            .map_or((0, 0), |tenant| (tenant.waiting, tenant.lines[ticket.lane as usize].calls.len()));
        let why = self.why(now, id, ticket, in_line, needs, None);
        let why =
            Why { rule: cause.rule.unwrap_or(why.rule), expected: cause.expected.or(why.expected), ..why };
        Refusal {
            reason: cause.reason,
            position,
            retry_after: cause.retry_after,
            why: Some(why),
            most: cause.most,
        }
    }
}
