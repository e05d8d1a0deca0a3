//! A slot's life: what it was charged, what comes back when it ends, and what is learned meanwhile.

use std::time::{Duration, Instant};

use super::claim::Kind;
use super::ids::TenantId;
use super::limiter::Tracked;
use super::pool::Lodging;
use super::stock::Taken;
use super::why::Rule;
use super::{Scheduler, Settled, Ticket};
use crate::adaptive::Ended;
use crate::context::Lane;
use crate::cooldown::{Attempt, Failure, Hold};
use crate::fairness::{Place, Tag};
use crate::kv::Progress;
use crate::placement::Fault;
use crate::wire::rate::RateHeaders;

/// A call that turns out to have cost more than so many times its estimate is not believed beyond that.
const CREDIBLE: f64 = 10_000.0;

/// A grant's name: the youngest is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(u64);

/// A slot, as the policy knows it. Goes back by [`Scheduler::release`], once.
#[derive(Debug)]
#[must_use = "a slot that is not released is lost"]
pub struct Grant {
    id: GrantId,
    pub(super) tenant: TenantId,
    pub(super) lane: Lane,
    /// Its start tag; of a retry, that of its first dispatch.
    tag: Tag,
    /// What its tenant was charged for this attempt in fair queueing.
    pub(super) cost: f64,
    /// Whether its work moves virtual time ([`VirtualTime::dispatch`](crate::fairness::VirtualTime::dispatch)).
    moves_by_work: bool,
    /// What its tenant's own tokens were charged.
    own: u64,
    taken: Option<Box<Taken>>,
    pub(super) attempt: Attempt,
    /// Slots held as it went, its own included.
    in_flight: usize,
    /// What the wait took of the call's wait budget.
    pub(super) spent: Duration,
    /// Whether the target has been told how the attempt went.
    judged: bool,
    sent: bool,
    /// As an adaptive limit knows it.
    pub(super) tracked: Option<Tracked>,
    ended: Ended,
    /// Where it is, where its target is a pool.
    pub(super) lodging: Option<Box<Lodging>>,
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
        self.tracked.is_some() || self.lodging.as_ref().is_some_and(|lodging| lodging.awaits)
    }

    /// It was told how the attempt went.
    pub(super) fn judged(&mut self) {
        self.judged = true;
    }

    /// Its name: what [`Scheduler::reclaim`] calls it by.
    pub fn id(&self) -> GrantId {
        self.id
    }

    /// Returns what a retry of the call carries in [`Ticket::charged`].
    pub fn charged(&self) -> Tag {
        self.tag
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
        let of_replica = self.lodging.as_ref().map(|lodging| lodging.progress());
        of_replica.or_else(|| self.taken.as_ref()?.progress())
    }
}

impl<W> Scheduler<W> {
    /// The head of an answer came: the call is not called back any more ([`Scheduler::reclaim`]).
    pub fn answered(&mut self, grant: &mut Grant) {
        if let Some(lent) = &mut self.lent {
            lent.settled(grant.id);
        }
        if let Some(pool) = self.upstream.pool_mut() {
            pool.settled(grant.id);
        }
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
        if let Some(taken) = &grant.taken {
            self.stock.heard(now, taken, sent_at, headers, limited);
        }
    }

    /// Whether the rate budgets have no room now for another call like it.
    pub fn is_spent(&self, now: Instant, grant: &Grant) -> bool {
        grant.taken.as_ref().is_some_and(|taken| self.stock.is_spent(now, taken))
    }

    /// What a call took is known: its tenant's account is put right, its tenant's own tokens and the budgets are. Ask [`Scheduler::next`] then.
    pub fn settle(&mut self, now: Instant, grant: &mut Grant, settled: &Settled) {
        let credible = |cost: &f64| cost.is_finite() && *cost >= 0.0;
        let cost = Some(settled.cost).filter(credible).unwrap_or(grant.cost);
        self.correct(grant, cost.min(grant.cost * CREDIBLE));
        let own = self.tenants.get_mut(grant.tenant).and_then(|tenant| tenant.own.as_mut());
        let of_own = own.is_some();
        if let Some(own) = own {
            let used = settled.usage.input.saturating_add(settled.usage.output);
            grant.own = own.settle(now, grant.own, used);
        }
        if let Some(taken) = &mut grant.taken {
            self.stock.settle(now, taken, &settled.usage);
        }
        self.place_some(grant.tenant, grant.lane, of_own);
        self.watch(now);
    }

    /// The upstream accepted the attempt that holds this slot.
    pub fn succeeded(&mut self, now: Instant, grant: &mut Grant) {
        grant.judged = true;
        match (self.upstream.pool_mut(), &mut grant.lodging) {
            (Some(pool), Some(lodging)) => {
                pool.succeeded(now, lodging);
                return self.note_slots(now);
            }
            (Some(_), None) => return,
            (None, _) => self.cooldown.succeeded(now, grant.attempt, self.upstream.slots()),
        }
        self.stood.set(now, Rule::CoolDown, self.cooldown.is_closed());
    }

    /// The upstream failed it in a way that a retry may mend; `call` tells calls apart, `jitter` is uniform in [0, 1). Of a call at a replica
    /// [`Scheduler::failed_there`] is told more.
    pub fn failed(
        &mut self,
        now: Instant,
        grant: &mut Grant,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
        jitter: f64,
    ) -> Hold {
        if grant.lodging.is_some() {
            let unread = matches!(failure, Failure::Unread { .. });
            return self.failed_there(now, grant, if unread { Fault::Full(delay) } else { Fault::Broke });
        }
        grant.judged = true;
        let hold = self.cooldown.failed(now, call, failure, grant.attempt, delay, jitter);
        self.stood.set(now, Rule::CoolDown, self.cooldown.is_closed());
        hold
    }

    /// Takes back a slot. Where nobody judged the attempt, it ended without an answer: if it was a probe, the next one is.
    ///
    /// What was never sent is given back to the budgets. It is given back to its tenant's account in
    /// fair queueing, too, and so is the charge of an attempt that was turned away unread. Whatever
    /// may have run stays charged, whether it is retried or not.
    pub fn release(&mut self, now: Instant, mut grant: Grant) {
        self.tick(now);
        if !grant.judged {
            self.cooldown.inconclusive(grant.attempt);
        }
        self.in_flight -= 1;
        self.by_lane[grant.lane as usize] -= 1;
        if let Some(tracked) = grant.tracked.take() {
            self.untrack(now, tracked, grant.lodging.as_deref(), grant.ended);
        }
        let (waits, full_since) = self.shortage(Rule::Slots);
        self.pace.released(now, waits, full_since);
        if let Some(lent) = &mut self.lent {
            lent.settled(grant.id);
        }
        let corrected = !grant.may_have_run();
        if corrected {
            self.correct(&mut grant, 0.0);
        }
        self.lanes.release(now, grant.lane, grant.id, self.upstream.slots());
        let mut all = false;
        if let Some(tenant) = self.tenants.get_mut(grant.tenant) {
            if grant.moves_by_work {
                let weights = self.lanes.weight(grant.lane) + tenant.weight;
                self.lanes.time_mut(grant.lane).serve(grant.cost, weights);
            }
            all = tenant.is_capped() || tenant.own.is_some();
            tenant.in_flight -= 1;
            tenant.capped.set(now, tenant.in_flight >= tenant.cap);
            if let Some(own) = tenant.own.as_mut().filter(|_| !grant.sent) {
                own.give(now, grant.own);
            }
        }
        self.leave(now, grant.id, grant.lodging.take());
        if let Some(taken) = grant.taken {
            self.stock.give_back(now, *taken, grant.sent);
        }
        self.note_slots(now);
        if corrected || all {
            self.place_some(grant.tenant, grant.lane, all);
        }
        self.watch(now);
    }

    /// Charges the call everything that it takes, and gives it a slot. `kept`: see [`Next`](super::order::Next). `out_of_turn`: fair
    /// queueing would have put another line first.
    pub(super) fn grant(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        kind: Kind,
        kept: Option<usize>,
        out_of_turn: bool,
    ) -> Grant {
        let lane = ticket.lane;
        self.in_flight += 1;
        self.by_lane[lane as usize] += 1;
        self.peak = self.peak.max(self.in_flight);
        self.grants += 1;
        self.last_grant = Some(now);
        let id_of = GrantId(self.grants);
        let (tracked, lodging) = self.track(now, id_of, ticket, kind, kept);
        let slots_bind = !self.has_slot();
        let attempt = self.cooldown.admit(now, ticket.has_failed, slots_bind);
        let (mut tag, mut moves_by_work, mut own) = (Tag::default(), false, 0);
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.in_flight += 1;
            tenant.peak = tenant.peak.max(tenant.in_flight);
            tenant.capped.set(now, tenant.in_flight >= tenant.cap);
            if let Some(bucket) = &mut tenant.own {
                own = bucket.settle(now, 0, ticket.demand.total());
            }
            let line = &mut tenant.lines[lane as usize];
            let entry = || self.lanes.entry(lane, ticket.cost / tenant.weight);
            let since = line.standing.map_or_else(entry, |standing| standing.since);
            tag = ticket.charged.unwrap_or_else(|| line.account.start(since));
            // A call of a line in debt may have overtaken what does not fit.
            let out_of_turn = out_of_turn || self.lanes.time(lane).is_owed(&line.account);
            let first = if out_of_turn { self.lanes.first_tag_but(lane, id) } else { None };
            let place = Place { tag, since, first };
            let time = self.lanes.time_mut(lane);
            moves_by_work = time.dispatch(&mut line.account, place, ticket.cost, tenant.weight);
            self.lanes.count(now, lane, line);
        }
        if let Some(lent) = &mut self.lent {
            lent.went(id_of, id, lane);
        }
        Grant {
            id: id_of,
            tenant: id,
            lane,
            tag,
            cost: ticket.cost,
            moves_by_work,
            own,
            taken: self.stock.take(now, ticket),
            attempt,
            in_flight: self.in_flight,
            spent: Duration::ZERO,
            judged: false,
            sent: false,
            tracked,
            ended: Ended::Cancelled,
            lodging,
        }
    }

    /// Forgives the debts of each lane of which no call waits or runs.
    pub(super) fn end_busy_periods(&mut self) {
        for lane in Lane::ALL {
            if self.by_lane[lane as usize] == 0 && self.load.waiting(lane) == 0 {
                self.lanes.time_mut(lane).end_busy_period();
            }
        }
    }

    /// Puts right what a call was charged in fair queueing.
    fn correct(&mut self, grant: &mut Grant, cost: f64) {
        let correction = cost - std::mem::replace(&mut grant.cost, cost);
        if let Some(tenant) = self.tenants.get_mut(grant.tenant) {
            let account = &mut tenant.lines[grant.lane as usize].account;
            self.lanes.time_mut(grant.lane).correct(account, correction, tenant.weight);
        }
    }
}
