//! The order of lanes, and of the lines inside a lane. A line is the waiting calls of one tenant in
//! one lane. Lanes are ordered by priority and age, and the lines of a lane by start-time fair
//! queueing.
//!
//! # Ageing
//!
//! A lane is *raised* when its oldest call has waited for `n` times the ageing time, where the
//! highest lane with waiting calls is `n` lanes above. A raised lane may go *early*, that is,
//! before higher lanes, for at most an eighth of the capacity ([`EARLY_DIVISOR`]):
//!
//! - Slots: the lane may go early while it uses less than an eighth of the slots, or none if there
//!   are fewer than 16. With fewer than 8 slots, one slot is more than an eighth. In that case, the
//!   lane *rests* after each early call: it dispatches no further call early until the slot time
//!   that the call used is an eighth of the total slot time since its dispatch.
//! - Cost: after an early call that did not take the last free slot, the lane may go early again
//!   when higher lanes have been charged seven times the cost of that call. The cost stands for
//!   tokens, memory and first tokens, one of which must be short if slots are free. This condition
//!   does not apply to a call that takes the last free slot.
//!
//! A raised lane is therefore never starved, and what remains for the higher lanes depends neither
//! on how many calls wait below them nor on how long those calls take.
//!
//! Inside a lane, the age of calls has no effect, with one exception. A line is *in debt* if its
//! calls cost more than they were estimated. Such a line goes first if it has waited for the ageing
//! time and was passed over for eight rounds. A round is as many dispatches as the lane has lines.
//! See `docs/design/fair-queueing.md`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{
    Available, Capacity, FitSet, GrantId, LazyOrder, Line, Requirements, TenantId, Ticket, WaiterId,
};
use crate::Lane;
use crate::fairness::{Tag, VirtualTime};

/// A lane that was raised by age may use an eighth of the capacity, and a line in debt gets one
/// dispatch in eight rounds. See [the module](self).
const EARLY_DIVISOR: usize = 8;

/// The sort key of a [`Line`] among the lines of its lane: its start tag in fair queueing, then
/// when its first call was queued, then the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey {
    tag: Tag,
    /// When the first call of the line was queued.
    age: Instant,
    pub(super) tenant: TenantId,
}

/// The position of a [`Line`] among the [`ReadyLines`] of its lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinePosition {
    pub(super) key: LineKey,
    /// The virtual time at which the line was added to [`ReadyLines`]. Unchanged until the line is
    /// removed from them.
    pub(super) since: Tag,
    pub(super) head: Head,
}

/// The first call of a [`Line`], with what the lane needs to order the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) call: WaiterId,
    pub(super) needs: Requirements,
    /// When the call was first queued.
    pub(super) age: Instant,
    /// The start tag of the call's first dispatch, or `None` if the call is not a retry.
    pub(super) queue_tag: Option<Tag>,
    /// The cost of the call in fair queueing. See [`Ticket::cost`].
    pub(super) cost: f64,
    /// The weight of the tenant in fair queueing.
    pub(super) weight: f64,
    /// The minimum of each requirement over all calls of the line.
    pub(super) least: Requirements,
    /// The number of calls of the line that the tenant's slot cap permitted when the line was last
    /// placed.
    pub(super) calls: usize,
}

/// The ready lines of one lane. A [`Line`] is the waiting calls of one tenant in the lane. It is
/// ready if it has calls and its tenant is neither at its slot cap nor out of its own tokens.
#[derive(Debug, Default)]
pub(super) struct ReadyLines {
    pub(super) time: VirtualTime,
    pub(super) by_tag: FitSet<LineKey>,
    /// The tenants of the ready lines, ordered by when the first call of the line was queued.
    ages: LazyOrder<Instant>,
    /// The tenants whose line is in debt in fair queueing, because their calls cost more than was
    /// estimated. They are ordered by the value of `dispatched` when the line last dispatched a
    /// call or became ready, then by when it last dispatched a call or when its first call was
    /// queued, whichever is later.
    debtors: LazyOrder<(u64, Instant)>,
    /// The number of calls dispatched from the lane so far.
    dispatched: u64,
    /// The sum of the weights of the tenants that have a ready line in the lane.
    pub(super) weight: f64,
    /// The sum of [`Head::calls`] of the ready lines.
    pub(super) calls: usize,
    /// The last call that the lane dispatched early, that is, before higher lanes with waiting
    /// calls, and when. `None` if there is none, or if the slot of that call was released.
    early: Option<(GrantId, Instant)>,
    /// Until when the lane may dispatch no call early, that is, before higher lanes. `None` if no
    /// slot of an early call has been released yet.
    rests_until: Option<Instant>,
    /// The cost that must be charged to higher lanes before the lane may again dispatch a call
    /// early, that is, before them, while more than one slot is free. Zero or less: it may do so
    /// now.
    debt: f64,
}

impl ReadyLines {
    /// Returns the virtual time at which a [`Line`] starts if it becomes ready now. `share` is the
    /// cost of its first call divided by the weight of its tenant. See [`VirtualTime::entry`].
    pub(super) fn entry(&self, share: f64) -> Tag {
        self.time.entry(self.by_tag.first().map(|(key, _)| key.tag), share)
    }

    /// Returns the tenant of the ready line with the least [`LineKey`], or `None` if no line is
    /// ready.
    pub(super) fn first(&self) -> Option<TenantId> {
        Some(self.by_tag.first()?.0.tenant)
    }

    /// Returns the number of ready lines whose first call goes before that of `line`, which belongs
    /// to `tenant`. `weight` is the weight of that tenant. If the line is not ready, returns the
    /// number as if the line became ready now with the call of `ticket` as its first call.
    pub(super) fn lines_before(&self, tenant: TenantId, weight: f64, line: &Line, ticket: &Ticket) -> usize {
        let key_now = || {
            let since = self.entry(ticket.cost / weight);
            let tag = ticket.queue_tag.unwrap_or_else(|| line.account.start(since));
            LineKey { tag, age: ticket.queued_at, tenant }
        };
        self.by_tag.rank(&line.position.map_or_else(key_now, |position| position.key))
    }

    /// Returns the least start tag of the ready lines, except the line of `tenant`. Returns `None`
    /// if there is no other line.
    pub(super) fn first_tag_but(&self, tenant: TenantId) -> Option<Tag> {
        let first = (0..2).filter_map(|at| self.by_tag.nth(at)).find(|key| key.tenant != tenant)?;
        Some(first.tag)
    }

    /// Returns the key of the first ready line whose key is greater than `after` and whose least
    /// requirements fit into `available`. If `after` is `None`, searches all ready lines.
    pub(super) fn next_fit(&self, after: Option<&LineKey>, available: &Available) -> Option<LineKey> {
        self.by_tag.next_fit(after, available, u32::MAX)
    }

    /// Replaces the least requirements of a ready line (see [`Head::least`]). Tenant tokens are
    /// ignored, because a line whose tenant lacks tokens is parked.
    pub(super) fn set(&mut self, key: &LineKey, least: Requirements) {
        self.by_tag.set(key, Requirements { tenant_tokens: 0, ..least });
    }

    /// Returns the tenant whose line goes before all others of the lane because it is in debt, has
    /// waited for `aging`, and was passed over for eight rounds (see [the module](self)). Returns
    /// `None` if there is no such line.
    pub(super) fn debtor(&mut self, now: Instant, aging: Duration) -> Option<TenantId> {
        let (at, tenant) = self.debtor_at(aging)?;
        (at <= now).then_some(tenant)
    }

    /// Records that the lane has dispatched a call of `line`.
    pub(super) fn count(&mut self, now: Instant, line: &mut Line) {
        self.dispatched += 1;
        (line.passed_since, line.last_dispatch) = (self.dispatched, Some(now));
    }

    /// Returns when the oldest waiting call of the lane has waited for `lanes` times the ageing
    /// time, which raises the lane by `lanes` lanes. Returns `None` if no line is ready or if
    /// ageing is disabled (`aging` is zero).
    fn raised_at(&mut self, lanes: usize, aging: Duration) -> Option<Instant> {
        let (oldest, _) = self.ages.order().first()?;
        oldest.checked_add(aging.checked_mul(lanes as u32)?).filter(|_| !aging.is_zero())
    }

    /// Returns the tenant whose line is in debt and was passed over for eight rounds (see [the
    /// module](self)), and when that line has also waited for `aging`. Returns `None` if there is
    /// no such line or if ageing is disabled (`aging` is zero).
    fn debtor_at(&mut self, aging: Duration) -> Option<(Instant, TenantId)> {
        let ((dispatched, since), tenant) = *self.debtors.order().first()?;
        let passed_over = self.dispatched - dispatched >= (EARLY_DIVISOR * self.by_tag.len()) as u64;
        Some((since.checked_add(aging)?, tenant)).filter(|_| passed_over && !aging.is_zero())
    }
}

/// A lane in the dispatch order, and whether it precedes a higher lane because of the age of its
/// oldest call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) lane: Lane,
    /// Whether the lane goes before a higher lane that has waiting calls, because its oldest call
    /// has waited for long enough.
    pub(super) is_early: bool,
}

/// The ready lines of each lane, and the parked lines, that is, those whose tenant is out of tokens
/// of its own.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: [ReadyLines; 3],
    /// The lines of tenants that are out of tokens of their own, with the time at which each line
    /// becomes ready again.
    pub(super) parked: BTreeSet<(Instant, Lane, TenantId)>,
}

impl Lanes {
    /// Returns `true` if no line is ready. Parked lines are not ready.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.by_tag.is_empty())
    }

    pub(super) fn lane(&self, lane: Lane) -> &ReadyLines {
        &self.lanes[lane as usize]
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> &mut ReadyLines {
        &mut self.lanes[lane as usize]
    }

    /// Inserts or moves a line among the ready lines of its lane, by its first call `head`. Removes
    /// the line from them if `head` is `None`.
    pub(super) fn place(&mut self, lane: Lane, tenant: TenantId, line: &mut Line, head: Option<Head>) {
        let Some(head) = head else { return self.leave(lane, tenant, line) };
        let before = line.position;
        let entry = || self.lane(lane).entry(head.cost / head.weight);
        let since = before.map_or_else(entry, |position| position.since);
        let tag = head.queue_tag.unwrap_or_else(|| line.account.start(since));
        let key = LineKey { tag, age: head.age, tenant };
        line.position = Some(LinePosition { key, since, head });
        let ready = self.lane_mut(lane);
        ready.calls = ready.calls + head.calls - before.map_or(0, |before| before.head.calls);
        match before {
            // If the line has not moved, its known least requirements stay valid.
            Some(LinePosition { key: old, head: was, .. }) if old == key && was.call == head.call => {
                if was.least != head.least {
                    self.lane_mut(lane).set(&key, head.least);
                }
                return;
            }
            Some(LinePosition { key: old, .. }) => {
                self.lane_mut(lane).by_tag.remove(&old);
            }
            None => {
                self.unpark(lane, tenant, line);
                let ready = self.lane_mut(lane);
                ready.weight += head.weight;
                line.passed_since = ready.dispatched;
            }
        }
        let ready = self.lane_mut(lane);
        ready.by_tag.insert(key, Requirements { tenant_tokens: 0, ..head.least });
        ready.ages.set(tenant, Some(head.age));
        let is_in_debt = ready.time.is_in_debt(&line.account);
        if is_in_debt || line.is_debtor {
            let since = line.last_dispatch.map_or(head.age, |went| went.max(head.age));
            ready.debtors.set(tenant, is_in_debt.then_some((line.passed_since, since)));
        }
        line.is_debtor = is_in_debt;
    }

    /// Removes a line from the ready lines of its lane until `until`, because its tenant is out of
    /// tokens of its own. When it becomes ready again, it is treated like the line of a new tenant,
    /// so that it gains no advantage from the time in which it was parked.
    pub(super) fn park(&mut self, lane: Lane, tenant: TenantId, line: &mut Line, until: Instant) {
        self.leave(lane, tenant, line);
        self.parked.insert((until, lane, tenant));
        line.parked = Some(until);
    }

    /// Removes a line from the ready lines of its lane and from the parked lines.
    fn leave(&mut self, lane: Lane, tenant: TenantId, line: &mut Line) {
        self.unpark(lane, tenant, line);
        if let Some(position) = line.position.take() {
            let ready = self.lane_mut(lane);
            ready.by_tag.remove(&position.key);
            ready.calls -= position.head.calls;
            ready.ages.set(tenant, None);
            if std::mem::take(&mut line.is_debtor) {
                ready.debtors.set(tenant, None);
            }
            // Avoids accumulating rounding errors.
            let rest = (ready.weight - position.head.weight).max(0.0);
            ready.weight = if ready.by_tag.is_empty() { 0.0 } else { rest };
        }
    }

    /// Removes a line from the parked lines, if it is one of them.
    fn unpark(&mut self, lane: Lane, tenant: TenantId, line: &mut Line) {
        if let Some(until) = line.parked.take() {
            self.parked.remove(&(until, lane, tenant));
        }
    }

    /// Removes a line that becomes ready by `now` from the parked lines, and returns its lane and
    /// its tenant. Returns `None` if there is no such line. The caller must place the line.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Lane, TenantId)> {
        self.parked.first().filter(|(until, ..)| *until <= now)?;
        let (_, lane, tenant) = self.parked.pop_first()?;
        Some((lane, tenant))
    }

    /// Returns the lanes with ready lines in dispatch order: first the lanes that precede higher
    /// lanes because of the age of their oldest call, then all others, each by priority.
    pub(super) fn order(
        &mut self,
        now: Instant,
        aging: Duration,
        capacity: &Capacity,
    ) -> impl Iterator<Item = Turn> + use<> {
        let mut order = [None; 6];
        if let Some(top) = self.top() {
            for (index, lane) in self.lanes.iter_mut().enumerate().skip(top) {
                if lane.by_tag.is_empty() {
                    continue;
                }
                let may_take = capacity.by_lane[index] < (capacity.limits.slots / EARLY_DIVISOR).max(1)
                    && lane.rests_until.is_none_or(|until| until <= now)
                    && (capacity.is_last_slot() || lane.debt <= 0.0);
                // The age of the highest lane makes no difference.
                let is_early = index > top
                    && may_take
                    && lane.raised_at(index - top, aging).is_some_and(|raised| raised <= now);
                order[if is_early { index } else { 3 + index }] =
                    Some(Turn { lane: Lane::ALL[index], is_early });
            }
        }
        order.into_iter().flatten()
    }

    /// Returns the index of the highest lane with ready lines, or `None` if no line is ready.
    fn top(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| !lane.by_tag.is_empty())
    }

    /// Returns when time alone next changes the dispatch order, after `now`: a lane is raised by
    /// age, a lane may dispatch calls early again, or a line in debt goes first. Returns `None` if
    /// time changes nothing.
    pub(super) fn next_change(&mut self, now: Instant, aging: Duration) -> Option<Instant> {
        let top = self.top()?;
        let changes = self.lanes.iter_mut().enumerate().skip(top).flat_map(|(index, lane)| {
            let raised = lane.raised_at(index - top, aging);
            [raised, lane.rests_until, lane.debtor_at(aging).map(|(at, _)| at)]
        });
        changes.flatten().filter(|at| *at > now).min()
    }

    /// Records the dispatch of a waiting call, and deducts its `cost` from the debt of each lower
    /// lane (the cost that higher lanes must be charged before that lane may go early again). If
    /// the call went early, sets the debt of its own lane to seven times `cost`, unless `is_last`
    /// is `true`: the call took the last free slot.
    pub(super) fn on_dispatch(&mut self, now: Instant, turn: Turn, id: GrantId, cost: f64, is_last: bool) {
        for lower in self.lanes.iter_mut().skip(turn.lane as usize + 1) {
            lower.debt = (lower.debt - cost).max(0.0);
        }
        let lane = &mut self.lanes[turn.lane as usize];
        if turn.is_early {
            lane.early = Some((id, now));
            if !is_last {
                lane.debt = cost * (EARLY_DIVISOR - 1) as f64;
            }
        }
    }

    /// Updates the lane after a slot was released. If `id` was the last call that the lane
    /// dispatched early (before higher lanes), the lane dispatches no call early for a time in
    /// proportion to how long the call had the slot. `slots` is the current number of slots.
    pub(super) fn release(&mut self, now: Instant, lane: Lane, id: GrantId, slots: usize) {
        let lane = self.lane_mut(lane);
        if let Some((_, since)) = lane.early.take_if(|(early, _)| *early == id) {
            let (slots, share) = (slots.clamp(1, EARLY_DIVISOR) as u32, EARLY_DIVISOR as u32);
            let held = now.saturating_duration_since(since);
            lane.rests_until = now.checked_add(held.saturating_mul(share - slots) / slots);
        }
    }
}
