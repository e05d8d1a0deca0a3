//! A slot's life: what it was charged, what comes back when it ends, and what is learned meanwhile.

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
use crate::wire::rate::RateHeaders;

/// A call that turns out to have cost more than so many times its estimate is not believed beyond that.
const CREDIBLE: f64 = 10_000.0;

/// A grant's name: the youngest is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(u64);

impl GrantId {
    pub(super) fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A slot, as the policy knows it. Goes back by [`Scheduler::release`], once.
#[derive(Debug)]
#[must_use = "a slot that is not released is lost"]
pub struct Grant {
    id: GrantId,
    pub(super) tenant: TenantCharge,
    /// What the provider's budgets were charged.
    budget: Option<Box<Charge>>,
    pub(super) slot: UpstreamSlot,
    /// Slots held as it went, its own included.
    in_flight: usize,
    /// What the wait took of the call's wait budget.
    pub(super) spent: Duration,
    /// Whether the target has been told how the attempt went.
    pub(super) judged: bool,
    sent: bool,
    ended: Ended,
}

impl Grant {
    /// Slots held just after it was given, itself included.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The attempt goes out: from here on what it was charged stands, unless it is settled.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// It turned out that nothing of it went out.
    pub fn unsent(&mut self) {
        self.sent = false;
    }

    /// How the attempt ended: what the limit will be told when the slot is back. Else it counts as cancelled.
    pub fn ended(&mut self, how: Ended) {
        self.ended = how;
    }

    /// Whether the limit is found, and so learns from it, or it is at a replica that has not begun to answer: only then is there anything to tell of how the call
    /// goes.
    pub fn is_tracked(&self) -> bool {
        let slot = &self.slot;
        slot.tracked.is_some() || slot.assignment.as_ref().is_some_and(|assignment| assignment.awaits)
    }

    /// Its name: what [`Scheduler::preempt`] calls it by.
    pub fn id(&self) -> GrantId {
        self.id
    }

    /// Returns what a retry of the call carries in [`Ticket::charged`].
    pub fn charged(&self) -> Tag {
        self.tenant.tag
    }

    /// Whether the upstream may have run the attempt: it was sent, and not turned away unread.
    fn may_have_run(&self) -> bool {
        self.sent && !matches!(self.ended, Ended::Limited { .. } | Ended::Overloaded)
    }

    /// What the wait took of the call's wait budget; time during which the target was closed is not in it.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Where to write how far the answer has come; `None` where nobody asks, since no memory is accounted for.
    pub fn progress(&self) -> Option<&Progress> {
        self.slot.progress()
    }
}

impl<W> Scheduler<W> {
    /// The head of an answer came: the call is not called back any more ([`Scheduler::preempt`]).
    pub fn answered(&mut self, grant: &mut Grant) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.settled(grant.id);
        }
        self.capacity.upstream.on_answer(grant.id);
    }

    /// What an answer's headers say of the provider's own books. Budgets may have more room then: ask [`Scheduler::next`].
    pub fn heard(
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

    /// Whether the rate budgets have no room now for another call like it.
    pub fn is_spent(&self, now: Instant, grant: &Grant) -> bool {
        grant.budget.as_ref().is_some_and(|charge| self.capacity.budgets.is_spent(now, charge))
    }

    /// What a call took is known: its tenant's account is put right, its tenant's own tokens and the budgets are. Ask [`Scheduler::next`] then.
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

    /// The first token of an answer came. Another call may go then: ask [`Scheduler::next`].
    pub fn first_token(&mut self, now: Instant, grant: &mut Grant) {
        self.capacity.upstream.on_first_token(now, &mut grant.slot);
        if !grant.slot.awaits_first_token() {
            return;
        }
        self.tick(now);
        self.predictor.on_freed(now, Rule::FirstTokens, &self.queue, &self.capacity);
        self.capacity.on_first_token(now, &mut grant.slot);
        self.watch(now);
    }

    /// An answer that was to stream has begun, and its tokens cannot be seen: it is judged as one that does not stream. Another call may go then:
    /// ask [`Scheduler::next`].
    pub fn mark_unobservable(&mut self, now: Instant, grant: &mut Grant) {
        self.capacity.upstream.on_first_token(now, &mut grant.slot);
        if let Some(tracked) = grant.slot.tracked.as_ref().filter(|tracked| tracked.awaits) {
            let output = tracked.output;
            self.stop_observing(now, grant, output);
        }
    }

    /// Nothing will be told of how the call goes: it takes a slot, and says nothing else.
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

    /// The upstream accepted the attempt that holds this slot.
    pub fn succeeded(&mut self, now: Instant, grant: &mut Grant) {
        grant.judged = true;
        self.capacity.on_success(now, &mut grant.slot);
    }

    /// The upstream failed it in a way that a retry may mend; `call` tells calls apart, `jitter` is uniform in [0, 1). Of a call at a replica
    /// [`Scheduler::on_replica_failure`] is told more.
    pub fn failed(
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

    /// Takes back a slot. Where nobody judged the attempt, it ended without an answer: if it was a probe, the next one is.
    ///
    /// What was never sent is given back to the budgets. It is given back to its tenant's account in
    /// fair queueing, too, and so is the charge of an attempt that was turned away unread. Whatever
    /// may have run stays charged, whether it is retried or not.
    pub fn release(&mut self, now: Instant, mut grant: Grant) {
        self.tick(now);
        if !grant.judged {
            self.capacity.upstream.on_inconclusive(grant.slot.attempt);
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

    /// Charges the call everything that it takes, and gives it a slot. `kept`: see [`Next`](super::select::Next). `out_of_turn`: fair
    /// queueing would have put another line first.
    pub(super) fn grant(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        class: CallClass,
        kept: Option<usize>,
        out_of_turn: bool,
    ) -> Grant {
        // What is held, is held for somebody who waits.
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
            in_flight: self.capacity.in_flight(),
            spent: Duration::ZERO,
            judged: false,
            sent: false,
            ended: Ended::Cancelled,
        }
    }
}
