//! The ready lines of each lane, and the order of lanes and lines: lanes by priority and age, and
//! lines inside a lane by start-time fair queueing.
//!
//! # Ageing
//!
//! A lane is *raised* when its oldest call has waited for the ageing time once for each lane above
//! it that has calls waiting. A raised lane may go *early*, that is, before higher lanes, for at
//! most an eighth of the capacity ([`SHARE`]):
//!
//! - Of the slots: the lane may go early while it holds less than an eighth of the slots, or none
//!   if there are fewer than 16. With fewer than 8 slots, one slot is more than an eighth. In that
//!   case, the lane rests after each early call until the call's time in the slot is an eighth of
//!   the slots' time.
//! - Of the cost, unless the call takes the last slot: if slots are free, tokens, memory or first
//!   tokens may be what is short. The lane may go early again when higher lanes have been charged
//!   seven times the cost of its last early call.
//!
//! A raised lane is therefore never starved, and what remains for the higher lanes depends neither
//! on how many calls wait below them nor on how long those calls take.
//!
//! Inside a lane, fair queueing applies whatever the ages are, with one exception: a line in debt
//! goes when it has waited for the ageing time and has been passed over for eight rounds, each of
//! one dispatch for every line of the lane. See `docs/design/fair-queueing.md`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::GrantId;
use super::available::Available;
use super::fit_set::FitSet;
use super::ids::{TenantId, WaiterId};
use super::lazy_order::LazyOrder;
use super::requirements::Requirements;
use super::tenants::Line;
use crate::Lane;
use crate::fairness::{Tag, VirtualTime};

/// A raised lane gets one part in this many of the capacity, and a line in debt one dispatch in
/// this many rounds. Bounds what ageing takes from others, and sets how long a raised call waits.
const SHARE: usize = 8;

/// A line's sort key in its lane: its start tag, then the age of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey {
    tag: Tag,
    age: Instant,
    pub(super) tenant: TenantId,
}

/// A ready line's position in its lane. While the line stays ready, it keeps the credit of `since`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinePosition {
    pub(super) key: LineKey,
    pub(super) since: Tag,
    pub(super) head: Head,
}

/// What a lane knows about the head of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) call: WaiterId,
    /// What the call requires.
    pub(super) needs: Requirements,
    /// When the call was queued.
    pub(super) age: Instant,
    /// The start tag of the call's first dispatch, if the call is a retry.
    pub(super) charged: Option<Tag>,
    pub(super) cost: f64,
    /// The weight of the tenant.
    pub(super) weight: f64,
    /// The least that a call of the line requires.
    pub(super) least: Requirements,
}

/// The ready lines of one lane.
#[derive(Debug, Default)]
struct ReadyLines {
    time: VirtualTime,
    by_tag: FitSet<LineKey>,
    ages: LazyOrder<Instant>,
    /// The lines in debt, by the lane's dispatch count when they were last served or became ready,
    /// and since when they or their head have waited.
    debtors: LazyOrder<(u64, Instant)>,
    /// Calls dispatched so far.
    dispatched: u64,
    /// The sum of the weights of the ready lines.
    weight: f64,
    /// The last call that went early, and when.
    early: Option<(GrantId, Instant)>,
    /// Until when the lane rests after an early call.
    rests_until: Option<Instant>,
    /// The cost that higher lanes have to be charged before this lane goes early while slots are
    /// free.
    debt: f64,
}

impl ReadyLines {
    /// Returns when the oldest head was queued.
    fn oldest(&mut self) -> Option<Instant> {
        Some(self.ages.order().first()?.0)
    }

    /// Returns when the oldest head is raised by that many lanes.
    fn raised_at(&mut self, lanes: usize, aging: Duration) -> Option<Instant> {
        self.oldest()?.checked_add(aging.checked_mul(lanes as u32)?).filter(|_| !aging.is_zero())
    }

    /// Returns the line in debt that has been passed over often enough, and when it has also waited
    /// long enough.
    fn debtor_at(&mut self, aging: Duration) -> Option<(Instant, TenantId)> {
        let ((dispatched, since), tenant) = *self.debtors.order().first()?;
        let passed_over = self.dispatched - dispatched >= (SHARE * self.by_tag.len()) as u64;
        Some((since.checked_add(aging)?, tenant)).filter(|_| passed_over && !aging.is_zero())
    }
}

/// The slots of a target, and who holds them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    pub(super) in_force: usize,
    pub(super) in_flight: usize,
    pub(super) by_lane: [usize; 3],
}

impl Slots {
    /// Returns `true` if the next call takes the last slot, so that slots are what calls lack.
    pub(super) fn are_lacking(&self) -> bool {
        self.in_flight + 1 >= self.in_force
    }
}

/// A lane in dispatch order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) lane: Lane,
    /// Whether the lane goes before a higher one because of its age.
    pub(super) is_early: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: [ReadyLines; 3],
    /// Lines whose tenants are out of tokens, and until when.
    parked: BTreeSet<(Instant, Lane, TenantId)>,
}

impl Lanes {
    /// Returns `true` if no line is ready. Parked lines are not ready.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.by_tag.is_empty())
    }

    pub(super) fn time(&self, lane: Lane) -> &VirtualTime {
        &self.lanes[lane as usize].time
    }

    pub(super) fn time_mut(&mut self, lane: Lane) -> &mut VirtualTime {
        &mut self.lanes[lane as usize].time
    }

    /// Inserts, moves or removes a line according to its head.
    pub(super) fn place(&mut self, lane: Lane, tenant: TenantId, line: &mut Line, head: Option<Head>) {
        let Some(head) = head else { return self.leave(lane, tenant, line) };
        let before = line.position;
        let since =
            before.map_or_else(|| self.entry(lane, head.cost / head.weight), |position| position.since);
        let tag = head.charged.unwrap_or_else(|| line.account.start(since));
        let key = LineKey { tag, age: head.age, tenant };
        line.position = Some(LinePosition { key, since, head });
        match before {
            // The line has not moved, so that its known least requirements stay valid.
            Some(LinePosition { key: old, head: was, .. }) if old == key && was.call == head.call => {
                if was.least != head.least {
                    self.set(lane, &key, head.least);
                }
                return;
            }
            Some(LinePosition { key: old, .. }) => {
                self.lanes[lane as usize].by_tag.remove(&old);
            }
            None => {
                self.unpark(lane, tenant, line);
                let ready = &mut self.lanes[lane as usize];
                ready.weight += head.weight;
                line.passed_since = ready.dispatched;
            }
        }
        let ready = &mut self.lanes[lane as usize];
        ready.by_tag.insert(key, Requirements { tenant_tokens: 0, ..head.least });
        ready.ages.set(tenant, Some(head.age));
        let is_owed = ready.time.is_owed(&line.account);
        if is_owed || line.is_debtor {
            let since = line.last_dispatch.map_or(head.age, |went| went.max(head.age));
            ready.debtors.set(tenant, is_owed.then_some((line.passed_since, since)));
        }
        line.is_debtor = is_owed;
    }

    /// Returns the virtual start time of a line that becomes ready. See [`VirtualTime::entry`].
    pub(super) fn entry(&self, lane: Lane, share: f64) -> Tag {
        let ready = &self.lanes[lane as usize];
        ready.time.entry(ready.by_tag.first().map(|(key, _)| key.tag), share)
    }

    /// Returns the sum of the weights of the ready lines of a lane.
    pub(super) fn weight(&self, lane: Lane) -> f64 {
        self.lanes[lane as usize].weight
    }

    /// Removes a line until its tenant has tokens again. The line earns no credit meanwhile.
    pub(super) fn park(&mut self, lane: Lane, tenant: TenantId, line: &mut Line, until: Instant) {
        self.leave(lane, tenant, line);
        self.parked.insert((until, lane, tenant));
        line.parked = Some(until);
    }

    fn leave(&mut self, lane: Lane, tenant: TenantId, line: &mut Line) {
        self.unpark(lane, tenant, line);
        if let Some(position) = line.position.take() {
            let ready = &mut self.lanes[lane as usize];
            ready.by_tag.remove(&position.key);
            ready.ages.set(tenant, None);
            if std::mem::take(&mut line.is_debtor) {
                ready.debtors.set(tenant, None);
            }
            // Avoids accumulating rounding errors.
            let rest = (ready.weight - position.head.weight).max(0.0);
            ready.weight = if ready.by_tag.is_empty() { 0.0 } else { rest };
        }
    }

    fn unpark(&mut self, lane: Lane, tenant: TenantId, line: &mut Line) {
        if let Some(until) = line.parked.take() {
            self.parked.remove(&(until, lane, tenant));
        }
    }

    /// Returns a parked line that is due to be restored.
    pub(super) fn due(&self, now: Instant) -> Option<(Lane, TenantId)> {
        let (_, lane, tenant) = self.parked.first().copied().filter(|(until, ..)| *until <= now)?;
        Some((lane, tenant))
    }

    /// Returns the parked lines, the first to be restored first.
    pub(super) fn parked(&self) -> impl Iterator<Item = (Instant, Lane, TenantId)> {
        self.parked.iter().copied()
    }

    /// Returns the lanes with ready lines in dispatch order: early lanes, then by priority.
    pub(super) fn order(
        &mut self,
        now: Instant,
        aging: Duration,
        slots: &Slots,
    ) -> impl Iterator<Item = Turn> + use<> {
        let mut order = [None; 6];
        if let Some(top) = self.top() {
            for (index, lane) in self.lanes.iter_mut().enumerate().skip(top) {
                if lane.by_tag.is_empty() {
                    continue;
                }
                let may_take = slots.by_lane[index] < (slots.in_force / SHARE).max(1)
                    && lane.rests_until.is_none_or(|until| until <= now)
                    && (slots.are_lacking() || lane.debt <= 0.0);
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

    fn top(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| !lane.by_tag.is_empty())
    }

    /// Returns when time alone next changes the order: a lane is raised or has rested, or a line in
    /// debt becomes due.
    pub(super) fn next_change(&mut self, now: Instant, aging: Duration) -> Option<Instant> {
        let top = self.top()?;
        let changes = self.lanes.iter_mut().enumerate().skip(top).flat_map(|(index, lane)| {
            let raised = lane.raised_at(index - top, aging);
            [raised, lane.rests_until, lane.debtor_at(aging).map(|(at, _)| at)]
        });
        changes.flatten().filter(|at| *at > now).min()
    }

    /// Records the dispatch of a queued call: it pays for lower lanes, and is owed if it went
    /// early.
    pub(super) fn on_dispatch(&mut self, now: Instant, turn: Turn, id: GrantId, cost: f64, slots: &Slots) {
        for lower in self.lanes.iter_mut().skip(turn.lane as usize + 1) {
            lower.debt = (lower.debt - cost).max(0.0);
        }
        let lane = &mut self.lanes[turn.lane as usize];
        if turn.is_early {
            lane.early = Some((id, now));
        }
        if turn.is_early && !slots.are_lacking() {
            lane.debt = cost * (SHARE - 1) as f64;
        }
    }

    /// Handles the release of a slot. If the call took it early, its lane rests.
    pub(super) fn release(&mut self, now: Instant, lane: Lane, id: GrantId, slots: usize) {
        let lane = &mut self.lanes[lane as usize];
        if let Some((_, since)) = lane.early.take_if(|(early, _)| *early == id) {
            let (slots, share) = (slots.clamp(1, SHARE) as u32, SHARE as u32);
            let held = now.saturating_duration_since(since);
            lane.rests_until = now.checked_add(held.saturating_mul(share - slots) / slots);
        }
    }

    /// Returns the tenant whose line is first in a lane.
    pub(super) fn first(&self, lane: Lane) -> Option<TenantId> {
        Some(self.lanes[lane as usize].by_tag.first()?.0.tenant)
    }

    /// Returns the tenant in debt whose line has waited, and been passed over, for long enough.
    pub(super) fn debtor(&mut self, now: Instant, aging: Duration, lane: Lane) -> Option<TenantId> {
        let (at, tenant) = self.lanes[lane as usize].debtor_at(aging)?;
        (at <= now).then_some(tenant)
    }

    /// Records a dispatch of the line.
    pub(super) fn count(&mut self, now: Instant, lane: Lane, line: &mut Line) {
        let ready = &mut self.lanes[lane as usize];
        ready.dispatched += 1;
        (line.passed_since, line.last_dispatch) = (ready.dispatched, Some(now));
    }

    /// Returns the tag of the first line of a lane that is not the tenant's.
    pub(super) fn first_tag_but(&self, lane: Lane, tenant: TenantId) -> Option<Tag> {
        let by_tag = &self.lanes[lane as usize].by_tag;
        let first = (0..2).filter_map(|at| by_tag.nth(at)).find(|key| key.tenant != tenant)?;
        Some(first.tag)
    }

    /// Returns the first line after `after` with a call that may fit.
    pub(super) fn next_fit(
        &self,
        lane: Lane,
        after: Option<&LineKey>,
        available: &Available,
    ) -> Option<LineKey> {
        self.lanes[lane as usize].by_tag.next_fit(after, available, u32::MAX)
    }

    /// Replaces the least requirements of a line, if fewer of its calls may go than before.
    pub(super) fn set(&mut self, lane: Lane, key: &LineKey, least: Requirements) {
        self.lanes[lane as usize].by_tag.set(key, Requirements { tenant_tokens: 0, ..least });
    }

    /// Returns the earliest time for any line of a lane. See [`FitSet::soonest`].
    pub(super) fn soonest(
        &self,
        lane: Lane,
        best: Option<Instant>,
        bound: &mut dyn FnMut(&Requirements) -> Option<Instant>,
        of: &mut dyn FnMut(TenantId) -> Option<Instant>,
    ) -> Option<Instant> {
        self.lanes[lane as usize].by_tag.soonest(best, bound, &mut |key, _| of(key.tenant))
    }
}
