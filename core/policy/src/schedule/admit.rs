//! The decision about a new call: admit it, queue it, or refuse it. The refusals of waiting calls
//! are created here, too.

use std::time::{Duration, Instant};

use tidegate_config::Predict;

use super::{
    Available, Candidate, Grant, QueueSpace, Reason, Refusal, Requirements, Rule, Scheduler, Ticket,
    WaitExplanation,
};

/// When a refused call may be tried again.
pub(super) enum Retry {
    /// Not at this target: the call is too large, or the scheduler is draining.
    Never,
    /// At this time.
    At(Instant),
    /// After the expected time in which this many slots are released. If slots are free, but too
    /// many calls await their first token: after the expected time in which this many calls get
    /// their first token. See [`Scheduler::pace`].
    After(usize),
}

/// Why a new call may be neither admitted nor queued, with the details that its refusal reports.
struct RefusalCause {
    reason: Reason,
    retry: Retry,
    /// The rule to report, or `None` for the first rule that the call does not satisfy.
    rule: Option<Rule>,
    /// The predicted wait to report, or `None` for the result of [`Scheduler::expected_wait`].
    expected: Option<Duration>,
    /// See [`Refusal::max_tokens`].
    max_tokens: Option<u64>,
}

impl RefusalCause {
    fn new(reason: Reason, retry: Retry) -> Self {
        Self { reason, retry, rule: None, expected: None, max_tokens: None }
    }
}

impl<W> Scheduler<W> {
    /// Admits a call if it is admissible now and no waiting call goes first. Returns `Ok(None)` if
    /// the call has to wait; the driver then calls [`Scheduler::enqueue`].
    ///
    /// # Errors
    ///
    /// Returns the refusal if the call may be neither admitted nor queued.
    pub fn try_admit(&mut self, now: Instant, ticket: &Ticket) -> Result<Option<Box<Grant>>, Refusal> {
        self.tick(now);
        let tenant = self.queue.tenant(&ticket.tenant, now);
        self.on_active(now, tenant);
        // If nothing depends on requirements, they need not be computed.
        let needs =
            if self.capacity.is_sized() { self.capacity.needs(ticket) } else { Requirements::default() };
        let call = Candidate { tenant, ticket, needs };
        let oversize = self.capacity.oversize(&call);
        if oversize.is_none()
            && let Some(available) = self.available_to(now, &call)
        {
            let grant = self.grant(now, &call, available.kept, false);
            // The tenant may have reached its cap while other calls of it wait.
            self.queue.place_after(tenant, ticket.lane);
            return Ok(Some(grant));
        }
        let Some(cause) = self.refusal_cause(now, &call, oversize) else { return Ok(None) };
        let (position, in_line) = self
            .queue
            .tenants
            .get(tenant)
            .map_or((0, 0), |tenant| (tenant.waiting, tenant.lines[ticket.lane as usize].calls.len()));
        if cause.reason == Reason::Deadline && ticket.deadline <= ticket.queued_at {
            return Err(self.refusal(now, cause.reason, position, Retry::Never, None));
        }
        let why = self.why(now, &call, in_line, None);
        let rule = cause.rule.unwrap_or(why.rule);
        let why = WaitExplanation {
            rule,
            origin: self.capacity.budgets.origin(rule),
            expected: cause.expected.or(why.expected),
            ..why
        };
        let refusal = self.refusal(now, cause.reason, position, cause.retry, Some(why));
        Err(Refusal { max_tokens: cause.max_tokens, ..refusal })
    }

    /// Returns the tokens, memory and replicas that are available to the call, or `None` if the
    /// call may not be admitted now.
    fn available_to(&mut self, now: Instant, call: &Candidate<'_>) -> Option<Available> {
        let ready = self.capacity.upstream.ready(now, call.ticket.has_failed);
        if self.draining || call.ticket.deadline <= now {
            return None;
        }
        let available = self.selector(now).available_to_new(call)?;
        if ready.is_err() {
            self.gap.stop(now);
            return None;
        }
        Some(available)
    }

    /// Returns why the call must be refused, or `None` if it may wait. `oversize` is the rule that
    /// the call can never satisfy, and the maximum size that the rule permits, in tokens. `None`:
    /// there is no such rule.
    fn refusal_cause(
        &mut self,
        now: Instant,
        call: &Candidate<'_>,
        oversize: Option<(Rule, u64)>,
    ) -> Option<RefusalCause> {
        let Candidate { tenant, ticket, .. } = *call;
        let waiting = self.queue.tenants.get(tenant)?.waiting;
        if self.draining {
            return Some(RefusalCause::new(Reason::Draining, Retry::Never));
        }
        if let Some((rule, most)) = oversize {
            let cause = RefusalCause::new(Reason::TooLarge, Retry::Never);
            return Some(RefusalCause { rule: Some(rule), max_tokens: Some(most), ..cause });
        }
        if ticket.deadline <= now {
            return Some(RefusalCause::new(
                Reason::Deadline,
                Retry::After(self.capacity.in_flight + waiting),
            ));
        }
        let cooling = self.capacity.upstream.cooling_until().filter(|until| *until > now);
        let closed = cooling.map(|until| RefusalCause::new(self.closed_reason(), Retry::At(until)));
        if cooling.is_some_and(|until| until > self.closed_wait_ends(now, ticket)) {
            return closed;
        }
        if self.is_waiting_retry(ticket) {
            return None;
        }
        if self.refuses() {
            return closed.or_else(|| self.no_replica(now)).or_else(|| Some(self.when_full(now, call)));
        }
        if !ticket.ignores_queue_size()
            && let QueueSpace::Full = self.queue.space(tenant, ticket.lane)
        {
            return Some(RefusalCause::new(Reason::QueueFull, Retry::After(waiting + 1)));
        }
        self.too_late(now, call)
    }

    /// Returns the cause of a refusal by a pool in which no replica accepts calls. Returns `None`
    /// if a replica accepts calls, or if the target is not a pool. Such a refusal keeps the pool
    /// polled, because otherwise nothing would show when a replica is back.
    ///
    /// The deadline of the call is not considered, because a replica may return earlier or later
    /// than expected.
    fn no_replica(&mut self, now: Instant) -> Option<RefusalCause> {
        if !self.capacity.upstream.has_no_replica() {
            return None;
        }
        self.capacity.with_pool(|pool| pool.keep_polled(now));
        let until = self.capacity.upstream.closed_until(now).unwrap_or(now + Duration::from_secs(1));
        Some(RefusalCause::new(self.closed_reason(), Retry::At(until)))
    }

    /// Returns the cause of a refusal by a target that does not queue calls: [`Reason::NoBudget`]
    /// if a rate budget, the tenant's own tokens or the memory is short or reserved, otherwise
    /// [`Reason::NoSlot`].
    fn when_full(&mut self, now: Instant, call: &Candidate<'_>) -> RefusalCause {
        match self.selector(now).first_unmet_rule(call, None) {
            // While slots are free, a share that is missing is one of a rate.
            Some((rule, at)) if rule.is_budget() || rule == Rule::Share && self.capacity.has_slot() => {
                let cause = RefusalCause::new(Reason::NoBudget, at.map_or(Retry::After(1), Retry::At));
                RefusalCause { rule: Some(rule), ..cause }
            }
            _ => RefusalCause::new(Reason::NoSlot, Retry::After(1)),
        }
    }

    /// Returns the cause of the refusal if the predicted wait of the call exceeds its deadline, its
    /// wait budget or, with [`Predict::Objective`], the part of its lane's TTFT objective that the
    /// upstream does not need.
    ///
    /// Returns `None` if the wait exceeds none of them, if no wait is predicted, if predictions are
    /// configured not to refuse calls, or while a cool-down, an outage or a recovery is in
    /// progress.
    fn too_late(&self, now: Instant, call: &Candidate<'_>) -> Option<RefusalCause> {
        let Candidate { tenant, ticket, .. } = *call;
        let mode = self.settings.predict;
        // The end of a cool-down or an outage is not predicted.
        if mode == Predict::Off || !self.capacity.upstream.is_open() {
            return None;
        }
        let ahead_in_line = self.queue.line(tenant, ticket.lane)?.calls.len();
        let open = self.expected_wait(now, call, ahead_in_line)?;
        let cooling = self.capacity.upstream.cooling_until();
        let closed = cooling.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let all = open.saturating_add(closed);
        let objective = self.settings.lanes[ticket.lane as usize].ttft;
        let limits = [
            // A deadline never stops. A wait budget stops while the target is closed, unless the
            // target has a fallback.
            Some((all, ticket.deadline.saturating_duration_since(now))),
            self.wait_budget(ticket).map(|wait| (open, wait)),
            objective.filter(|_| mode == Predict::Objective).map(|objective| {
                let most = self.objective_wait.max_wait(objective, ticket);
                (all, most.saturating_sub(now.saturating_duration_since(ticket.queued_at)))
            }),
        ];
        let over = limits.into_iter().flatten().map(|(wait, most)| wait.saturating_sub(most)).max()?;
        let retry_at = now + over.clamp(Duration::from_secs(1), Duration::from_secs(60));
        let cause = RefusalCause::new(Reason::PredictedWait, Retry::At(retry_at));
        (!over.is_zero()).then_some(RefusalCause { expected: Some(all), ..cause })
    }

    /// Creates the refusal of a call with `position` calls of its tenant ahead. Each refusal of the
    /// scheduler is created here, and its `retry_after` is computed from `retry`.
    pub(super) fn refusal(
        &self,
        now: Instant,
        reason: Reason,
        position: usize,
        retry: Retry,
        why: Option<WaitExplanation>,
    ) -> Refusal {
        let retry_after = match retry {
            Retry::Never => None,
            Retry::At(at) => Some(at.saturating_duration_since(now)),
            Retry::After(count) => Some(self.pace().expected(count)),
        };
        Refusal { reason, position, retry_after, why, max_tokens: None }
    }
}
