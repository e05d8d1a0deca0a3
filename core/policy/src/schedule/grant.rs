//! The life of a slot: what an attempt was charged, and what its events change.

use std::time::{Duration, Instant};

use super::charges::TenantCharge;
use super::ids::TenantId;
use super::requirements::CallClass;
use super::rule::Rule;
use super::upstream::{Failed, UpstreamSlot};
use super::{Scheduler, Settled, Ticket};
use crate::adaptive::Ended;
use crate::budget::Charge;
use crate::cooldown::{Failure, Hold};
use crate::fairness::Tag;
use crate::kv::Progress;
use tidegate_protocol::rate::RateHeaders;

/// A settled cost above this multiple of the estimate is cut to it.
const CREDIBLE: f64 = 10_000.0;

/// Identifies a grant. Later grants compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(u64);

impl GrantId {
    pub(super) fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A slot held by one attempt. Must be passed to [`Scheduler::release`] once.
#[derive(Debug)]
#[must_use = "a slot that is not released is lost"]
pub struct Grant {
    id: GrantId,
    pub(super) tenant: TenantCharge,
    /// The charge to the provider's budgets.
    budget: Option<Box<Charge>>,
    pub(super) slot: UpstreamSlot,
    /// Slots held when this one was granted, itself included.
    in_flight: usize,
    /// The part of the wait budget that this call has used.
    pub(super) spent: Duration,
    /// Whether the attempt's result was reported to the upstream.
    pub(super) judged: bool,
    sent: bool,
    ended: Ended,
}

impl Grant {
    /// Returns the slots held when this one was granted, itself included.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Marks the attempt as sent. From then on its charge stands unless it is settled.
    pub fn mark_sent(&mut self) {
        self.sent = true;
    }

    /// Marks the attempt as not sent after all.
    pub fn mark_unsent(&mut self) {
        self.sent = false;
    }

    /// Sets the outcome that the limit learns from on release. The default is cancelled.
    pub fn set_outcome(&mut self, how: Ended) {
        self.ended = how;
    }

    /// Returns `true` if events of the attempt matter: its limit is adaptive, or its replica has
    /// not answered yet.
    pub fn is_tracked(&self) -> bool {
        let slot = &self.slot;
        slot.tracked.is_some() || slot.assignment.as_ref().is_some_and(|assignment| assignment.awaits)
    }

    /// Returns the identifier that [`Scheduler::preempt`] uses.
    pub fn id(&self) -> GrantId {
        self.id
    }

    /// Returns the value that a retry of the call carries in [`Ticket::charged`].
    pub fn charged(&self) -> Tag {
        self.tenant.tag
    }

    /// Returns `true` if the upstream may have run the attempt: it was sent and not rejected
    /// unread.
    fn may_have_run(&self) -> bool {
        self.sent && !matches!(self.ended, Ended::Limited { .. } | Ended::Overloaded)
    }

    /// Returns the part of the wait budget used by waiting. Time while the target was closed does
    /// not count.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns where to record the progress of the answer, or `None` if no memory is accounted for.
    pub fn progress(&self) -> Option<&Progress> {
        self.slot.progress()
    }
}

impl<W> Scheduler<W> {
    /// Handles the head of the answer. The call is not preempted from here on
    /// ([`Scheduler::preempt`]).
    pub fn on_answer(&mut self, grant: &mut Grant) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.settled(grant.id);
        }
        self.capacity.upstream.on_answer(grant.id);
    }

    /// Applies the rate headers of a response to the budgets. Call [`Scheduler::next`] afterwards.
    pub fn on_rate_headers(
        &mut self,
        now: Instant,
        grant: &Grant,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        if let Some(charge) = &grant.budget {
            self.capacity.budgets.on_headers(now, charge, sent_at, headers, limited);
        }
    }

    /// Returns `true` if the rate budgets have no room now for another call with the same charge.
    pub fn is_spent(&self, now: Instant, grant: &Grant) -> bool {
        grant.budget.as_ref().is_some_and(|charge| self.capacity.budgets.is_spent(now, charge))
    }

    /// Corrects the charges to the actual usage. Call [`Scheduler::next`] afterwards.
    pub fn settle(&mut self, now: Instant, grant: &mut Grant, settled: &Settled) {
        let charge = &mut grant.tenant;
        let credible = |cost: &f64| cost.is_finite() && *cost >= 0.0;
        let cost = Some(settled.cost).filter(credible).unwrap_or(charge.cost);
        let most = charge.cost * CREDIBLE;
        self.queue.correct(charge, cost.min(most));
        let used = settled.usage.input.saturating_add(settled.usage.output);
        let of_own = self.queue.correct_tokens(now, charge, used);
        if let Some(charge) = &mut grant.budget {
            self.capacity.budgets.settle(now, charge, &settled.usage);
        }
        self.queue.place_some(grant.tenant.tenant, grant.tenant.lane, of_own);
        self.watch(now);
    }

    /// Handles the first token of an answer. Call [`Scheduler::next`] afterwards.
    pub fn on_first_token(&mut self, now: Instant, grant: &mut Grant) {
        self.capacity.upstream.on_first_token(now, &mut grant.slot);
        if !grant.slot.awaits_first_token() {
            return;
        }
        self.tick(now);
        self.predictor.on_freed(now, Rule::FirstTokens, &self.queue, &self.capacity);
        self.capacity.on_first_token(now, &mut grant.slot);
        self.watch(now);
    }

    /// Marks the tokens of a streamed answer as unobservable: the attempt is judged like one that
    /// is not streamed.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn mark_unobservable(&mut self, now: Instant, grant: &mut Grant) {
        self.capacity.upstream.on_first_token(now, &mut grant.slot);
        if let Some(tracked) = grant.slot.tracked.as_ref().filter(|tracked| tracked.awaits) {
            let output = tracked.output;
            self.stop_observing(now, grant, output);
        }
    }

    /// Excludes the attempt from the samples of the limit. It keeps its slot.
    pub fn detach(&mut self, now: Instant, grant: &mut Grant) {
        self.stop_observing(now, grant, 0);
    }

    fn stop_observing(&mut self, now: Instant, grant: &mut Grant, output: u64) {
        if grant.slot.tracked.is_some() {
            self.tick(now);
            self.capacity.on_unobservable(now, &mut grant.slot, output);
            self.watch(now);
        }
    }

    /// Handles an attempt that the upstream accepted.
    pub fn on_success(&mut self, now: Instant, grant: &mut Grant) {
        grant.judged = true;
        self.capacity.on_success(now, &mut grant.slot);
    }

    /// Handles an attempt that failed in a way that a retry may repair.
    ///
    /// `call` tells calls apart. `jitter` is uniform in [0, 1). For attempts at a replica,
    /// [`Scheduler::on_replica_failure`] takes more detail.
    pub fn on_failure(
        &mut self,
        now: Instant,
        grant: &mut Grant,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
        jitter: f64,
    ) -> Hold {
        grant.judged = true;
        self.capacity.on_failure(now, &grant.slot, Failed { call, failure, delay, jitter })
    }

    /// Releases a slot. An attempt without a reported result ended without an answer; if it was a
    /// probe, another one follows.
    ///
    /// The charges of an attempt that was never sent are refunded. An attempt that was rejected
    /// unread is refunded in fair queueing only. The charges of an attempt that may have run stand.
    pub fn release(&mut self, now: Instant, mut grant: Grant) {
        self.tick(now);
        if !grant.judged {
            self.capacity.upstream.cooldown_mut().on_cancelled(grant.slot.attempt);
        }
        if grant.slot.awaits_first_token() {
            self.predictor.on_freed(now, Rule::FirstTokens, &self.queue, &self.capacity);
        }
        self.capacity.end(now, grant.tenant.lane, &mut grant.slot, grant.ended);
        self.predictor.on_freed(now, Rule::Slots, &self.queue, &self.capacity);
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.settled(grant.id);
        }
        let corrected = !grant.may_have_run();
        if corrected {
            self.queue.correct(&mut grant.tenant, 0.0);
        }
        let all = self.queue.release(now, grant.id, &grant.tenant, self.capacity.slots(), grant.sent);
        let replicas_changed = self.capacity.release(now, grant.id, grant.slot);
        if let Some(charge) = grant.budget.filter(|_| !grant.sent) {
            self.capacity.budgets.refund(now, *charge);
        }
        if replicas_changed {
            self.reclassify(now);
        }
        if corrected || all {
            self.queue.place_some(grant.tenant.tenant, grant.tenant.lane, all);
        }
        self.watch(now);
    }

    /// Grants a slot to a call and charges it.
    ///
    /// `kept` is the replica whose memory is kept for the head of the call's line. `out_of_turn` is
    /// `true` if fair queueing would have dispatched another line first.
    pub(super) fn grant(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        class: CallClass,
        kept: Option<usize>,
        out_of_turn: bool,
    ) -> Grant {
        // The reservation is for a call that waits.
        let held = self
            .order
            .reservation
            .filter(|_| !self.queue.lanes.is_empty())
            .and_then(|reservation| reservation.resources.at);
        let reserved = held.into_iter().chain(kept).collect();
        let (name, slot, budget) = self.capacity.admit(now, ticket, class, reserved);
        let tenant = self.queue.charge(now, id, ticket, out_of_turn);
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.on_dispatch(name, id, ticket.lane);
        }
        Grant {
            id: name,
            tenant,
            budget,
            slot,
            in_flight: self.capacity.in_flight,
            spent: Duration::ZERO,
            judged: false,
            sent: false,
            ended: Ended::Cancelled,
        }
    }
}
