//! [`Grant`], the slot of one attempt, and the events of the attempt from its admission to the
//! release of the slot.

use std::time::{Duration, Instant};

use super::{
    AwaitedFirstToken, Candidate, Failed, Rule, Scheduler, Settled, TenantCharge, TenantId, UpstreamSlot,
};
use crate::cooldown::Failure;
use crate::retry::RetryPath;
use crate::{adaptive::Ended, budget::Charge, fairness::Tag, kv::Progress};
use tidegate_protocol::rate::RateHeaders;

/// The maximum ratio of the actual cost of an attempt to its estimated cost. A higher actual cost
/// is cut to it.
const MAX_COST_RATIO: f64 = 10_000.0;

/// Identifies a [`Grant`] within its scheduler. Later grants compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub(super) u64);

/// A slot held by one attempt, with what the attempt was charged. Must be passed to
/// [`Scheduler::release`] once.
#[derive(Debug)]
#[must_use = "a slot that is not released is lost"]
pub struct Grant {
    /// The ID that [`Scheduler::preempt`] and [`Scheduler::next_stranded`] return.
    pub id: GrantId,
    pub(super) tenant: TenantCharge,
    /// The charge to the provider's rate budgets, or `None` if there are none.
    charge: Option<Charge>,
    pub(super) slot: UpstreamSlot,
    /// Set until the first token of a streamed answer is reported, if a lane has a TTFT objective
    /// that bounds waits.
    first_token: Option<AwaitedFirstToken>,
    /// The number of slots in use when this one was granted, itself included.
    pub in_flight: usize,
    /// The part of the call's wait budget ([`Ticket::wait`](super::Ticket::wait)) that was used
    /// while the call waited for this slot.
    pub used_wait: Duration,
    /// Whether the success or failure of the attempt was reported to the upstream.
    pub(super) is_reported: bool,
    /// Whether the attempt was sent. The driver sets it. If `true` on release, the charge to the
    /// rate budgets is kept, or stays as settled; otherwise, it is refunded. The default is
    /// `false`.
    pub sent: bool,
    /// The outcome that is reported to the adaptive limit on release. The default is
    /// [`Ended::Cancelled`].
    pub outcome: Ended,
}

impl Grant {
    /// Returns `true` if the driver must report the first token of the attempt, because its limit
    /// is adaptive, because a TTFT objective bounds waits, or because the answer is streamed by a
    /// replica of a pool and its first token was not reported.
    pub fn is_tracked(&self) -> bool {
        let slot = &self.slot;
        let is_measured = self.first_token.is_some() || slot.tracked.is_some();
        is_measured || slot.assignment.as_ref().is_some_and(|assignment| assignment.awaits)
    }

    /// Returns the start tag in fair queueing. A retry of the call must carry it in
    /// [`Ticket::queue_tag`](super::Ticket::queue_tag).
    pub fn queue_tag(&self) -> Tag {
        self.tenant.tag
    }

    /// Returns `true` if the upstream may have run the attempt: it was sent, and not rejected as
    /// over a rate limit or overloaded.
    fn may_have_run(&self) -> bool {
        self.sent && !matches!(self.outcome, Ended::Limited { .. } | Ended::Overloaded)
    }

    /// Returns the counter of the output tokens of the answer, which the reader of the answer
    /// updates. Returns `None` if the memory of the engine is not accounted for.
    pub fn progress(&self) -> Option<&Progress> {
        self.slot.memory.as_ref().map(|memory| &memory.progress)
    }
}

impl<W> Scheduler<W> {
    /// Records that the response head has arrived. From now on, the call is not returned by
    /// [`Scheduler::preempt`] or [`Scheduler::next_stranded`].
    pub fn on_response_head(&mut self, grant: &mut Grant) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.remove(grant.id);
        }
        self.capacity.upstream.on_response_head(grant.id);
    }

    /// Applies the rate headers of a response to the rate budgets. `sent_at` is when the attempt
    /// was sent, and `limited` is `true` if the attempt was rejected as over a rate limit.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn on_rate_headers(
        &mut self,
        now: Instant,
        grant: &Grant,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        if let Some((mut budgets, charge)) = self.capacity.budgets.lock().zip(grant.charge.as_ref()) {
            budgets.on_response(now, charge, sent_at, headers, limited);
        }
    }

    /// Returns `true` if a rate budget has too little left now for another call with the same
    /// charge. Returns `false` if there are no budgets.
    pub fn is_budget_exhausted(&self, now: Instant, grant: &Grant) -> bool {
        let charge = grant.charge.as_ref();
        charge.is_some_and(|charge| self.capacity.budgets.is_spent(now, &charge.need))
    }

    /// Corrects the estimated charges of an attempt to its actual usage. A cost that is not finite
    /// or is negative is ignored. A cost of more than 10,000 times the charged one is cut to that.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn settle(&mut self, now: Instant, grant: &mut Grant, settled: &Settled) {
        let charge = &mut grant.tenant;
        let credible = |cost: &f64| cost.is_finite() && *cost >= 0.0;
        let cost = Some(settled.cost).filter(credible).unwrap_or(charge.cost);
        let most = charge.cost * MAX_COST_RATIO;
        self.queue.correct(charge, cost.min(most));
        let used = settled.usage.input.saturating_add(settled.usage.output);
        let replace_all_lines = self.queue.correct_tokens(now, charge, used);
        if let Some((mut budgets, charge)) = self.capacity.budgets.lock().zip(grant.charge.as_mut()) {
            budgets.settle(now, charge, &settled.usage);
        }
        self.queue.place_some(grant.tenant.tenant, grant.tenant.lane, replace_all_lines);
        self.watch_gap(now);
    }

    /// Records the first token of an answer. The attempt no longer counts among those that await
    /// their first token, so that another call may be admitted.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn on_first_token(&mut self, now: Instant, grant: &mut Grant) {
        if let Some(awaited) = grant.first_token.take() {
            self.objective_wait.on_first_token(now, awaited);
        }
        self.capacity.upstream.on_first_token(now, &mut grant.slot);
        if !grant.slot.awaits_first_token() {
            return;
        }
        self.tick(now);
        self.on_freed(now, Rule::FirstTokens);
        self.stop_awaiting(grant.tenant.tenant, &grant.slot);
        self.capacity.report(now, &mut grant.slot, |limiter, tracked| limiter.on_first_token(now, tracked));
        self.watch_gap(now);
    }

    /// Records that the tokens of a streamed answer cannot be observed. The adaptive limit then
    /// treats the attempt like one that is not streamed.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn mark_unobservable(&mut self, now: Instant, grant: &mut Grant) {
        grant.first_token = None;
        self.capacity.upstream.on_first_token(now, &mut grant.slot);
        if grant.slot.awaiting().is_some() {
            self.tick(now);
            self.stop_awaiting(grant.tenant.tenant, &grant.slot);
            self.capacity
                .report(now, &mut grant.slot, |limiter, tracked| limiter.on_unobservable(now, tracked));
            self.watch_gap(now);
        }
    }

    /// Stops counting an attempt among those of its tenant that await their first token, if it is
    /// one.
    fn stop_awaiting(&mut self, tenant: TenantId, slot: &UpstreamSlot) {
        if let Some(tracked) = slot.awaiting() {
            self.queue.stop_awaiting(tenant, tracked.work());
        }
    }

    /// Records that the upstream accepted the attempt. This may end a cool-down or an outage.
    ///
    /// Returns `true` if waiting calls may be admissible by it. Call [`Scheduler::next`] then.
    pub fn on_success(&mut self, now: Instant, grant: &mut Grant) -> bool {
        grant.is_reported = true;
        let was_open = self.capacity.upstream.on_success(now, &mut grant.slot);
        let limits = self.capacity.limits;
        self.capacity.refresh_limits(now);
        // A replica that recovers may have free slots.
        let may_have_room = grant.slot.assignment.is_some() || self.capacity.limits != limits;
        !was_open || may_have_room && self.has_waiting()
    }

    /// Records that an attempt failed in a way that a retry may repair. This may start a cool-down
    /// or an outage. Returns what the call should do next.
    ///
    /// `call` identifies the call among all calls of the target. `delay` is the time for which the
    /// upstream asked callers to wait, if it did. `jitter` is uniform in [0, 1). For attempts at a
    /// replica, [`Scheduler::on_replica_failure`] accepts more detail.
    pub fn on_failure(
        &mut self,
        now: Instant,
        grant: &mut Grant,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
        jitter: f64,
    ) -> RetryPath {
        grant.is_reported = true;
        let failed = Failed { call, failure, delay, jitter };
        let path = self.capacity.upstream.on_failure(now, &grant.slot, failed);
        self.capacity.refresh_limits(now);
        path
    }

    /// Releases a slot. For the cool-down, an attempt whose success or failure was not reported
    /// counts as cancelled. If such an attempt was a probe, another probe may follow.
    ///
    /// - Attempts that were not sent: all charges are refunded.
    /// - Attempts that were rejected as over a limit or overloaded: the charge in fair queueing is
    ///   refunded.
    /// - All other attempts: the charges stand.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn release(&mut self, now: Instant, mut grant: Box<Grant>) {
        self.tick(now);
        if !grant.is_reported {
            self.capacity.upstream.cooldown_mut().on_cancelled(grant.slot.attempt);
        }
        if grant.slot.awaits_first_token() {
            self.on_freed(now, Rule::FirstTokens);
            self.stop_awaiting(grant.tenant.tenant, &grant.slot);
        }
        self.capacity.end(now, grant.tenant.lane, &mut grant.slot, grant.outcome);
        self.on_freed(now, Rule::Slots);
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.remove(grant.id);
        }
        let corrected = !grant.may_have_run();
        if corrected {
            self.queue.correct(&mut grant.tenant, 0.0);
        }
        let slots = self.capacity.limits.slots;
        let replace_all_lines = self.queue.release(now, grant.id, &grant.tenant, slots, grant.sent);
        let replicas_changed = self.capacity.release(now, grant.id, &mut grant.slot);
        self.on_active(now, grant.tenant.tenant);
        if !grant.sent
            && let Some((mut budgets, charge)) = self.capacity.budgets.lock().zip(grant.charge.as_ref())
        {
            budgets.refund(now, charge);
        }
        if replicas_changed {
            self.reclassify(now);
        }
        if corrected || replace_all_lines {
            self.queue.place_some(grant.tenant.tenant, grant.tenant.lane, replace_all_lines);
        }
        self.watch_gap(now);
    }

    /// Gives a call a slot and charges the call to its tenant and the rate budgets.
    ///
    /// `kept` is the index of the replica whose memory the call may not use, because it is kept for
    /// the first waiting call of the same tenant and lane. `out_of_turn` is `true` if the call is
    /// dispatched because of reserved slots (a floor) or a debt of its tenant in fair queueing,
    /// instead of by its turn.
    pub(super) fn grant(
        &mut self,
        now: Instant,
        call: &Candidate<'_>,
        kept: Option<usize>,
        out_of_turn: bool,
    ) -> Box<Grant> {
        // The reservation is for a call that waits.
        let has_ready_line = !self.queue.lanes.is_empty();
        let reservation = self.order.reservation.filter(|_| has_ready_line);
        let reserved = reservation.and_then(|reservation| reservation.resources.at);
        let reserved = reserved.into_iter().chain(kept).collect();
        let upstream = &self.capacity.upstream;
        let exceeds_share =
            upstream.as_pool().is_some() && self.queue.exceeds_share(now, call.tenant, upstream.load());
        let (id, slot) = self.capacity.admit(now, call, reserved, exceeds_share);
        if let Some(tracked) = slot.awaiting() {
            self.queue.start_awaiting(now, call.tenant, tracked.work(), tracked.work_seconds);
        }
        let tenant = self.queue.charge(now, call, out_of_turn);
        self.on_active(now, call.tenant);
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.unanswered.insert(id, (call.tenant, call.ticket.lane));
        }
        Box::new(Grant {
            id,
            tenant,
            charge: self.capacity.charge(now, call.ticket),
            slot,
            first_token: self.objective_wait.on_admitted(now, call.ticket),
            in_flight: self.capacity.in_flight,
            used_wait: Duration::ZERO,
            is_reported: false,
            sent: false,
            outcome: Ended::Cancelled,
        })
    }
}
