//! Selection of the waiting call that is dispatched next.
//!
//! # Order
//!
//! 1. Tenants, then lanes, that have fewer slots than their floor, the least served first.
//! 2. The *front*: the first call of the first line in fair queueing, in the lane whose turn it is
//!    (see [`super::lanes`]).
//! 3. If the front does not fit: the first call that fits in its line, then in its lane, then in
//!    the other lanes. If the front is *aged*, that is, has waited for the ageing time, what it
//!    lacks is *reserved*: no other call may take it, not even for a floor.
//!
//! If the first call of a line is aged, no other call of the line may be dispatched before it at a
//! single server. At a pool, the calls behind it may be dispatched to any replica if no eligible
//! replica has a free slot for the first call. If the first call lacks only memory, they may be
//! dispatched to any replica except the one whose memory is kept for it. A line whose tenant is out
//! of tokens is parked. If its first call is aged, that tenant's own tokens are kept for it: the
//! tenant's lines in lower lanes are parked, too. Lines of other tenants are not blocked.
//!
//! If the next call is a probe of a target that was down, calls that have failed at the target are
//! excluded, unless there are no others.
//!
//! # Cost of a decision
//!
//! Whether the engine has enough memory for a call is known only after checking that call. One
//! decision checks at most [`MAX_FAILED_CHECKS`](super::available) calls that do not fit. After
//! half of these checks, it checks only calls with a shorter prompt than each call that did not
//! fit. Floors have checks of their own, so that the front is always checked.

use std::time::{Duration, Instant};

use super::{
    Available, Candidate, Capacity, Floors, Holder, LineKey, Queue, Requirements, ReservedResources, Tenant,
    TenantId, Turn, UnderFloor, WaiterId,
};
use crate::Lane;

/// The resources that are reserved for the front, that is, for the waiting call that is first in
/// the dispatch order.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadReservation {
    pub(super) call: WaiterId,
    pub(super) resources: ReservedResources,
}

/// The waiting call that is dispatched next, and why: because slots are reserved for its tenant or
/// lane (a floor), or because it is the turn of its lane.
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) next: FittingCall,
    /// The tenant or lane for whose floor the call is dispatched, or `None` if it is the turn of
    /// the call's lane.
    pub(super) floor: Option<Holder>,
    /// See [`Turn::is_early`].
    pub(super) is_early: bool,
}

/// A waiting call that fits into what is available.
#[derive(Clone, Copy, Debug)]
pub(super) struct FittingCall {
    pub(super) call: WaiterId,
    /// The index of the replica whose memory the call may not use, because it is kept for the first
    /// waiting call of the same tenant and lane. `None`: no replica.
    pub(super) kept: Option<usize>,
}

/// The result of searching a line (the waiting calls of one tenant in one lane) for a call that
/// fits.
enum LineResult {
    /// The first call that fits.
    Found(FittingCall),
    /// No call of the line can be dispatched before this time, because the tenant has too few
    /// tokens of its own, or keeps them for a call of a higher lane.
    OutOfTokens(Instant),
    /// No call fits. Contains the minimum of each requirement over the calls of the line that may
    /// be dispatched. If what is available does not satisfy it, the line need not be searched
    /// again.
    NoneFits(Requirements),
}

/// The first waiting call of one tenant in one lane, or, while the target is being probed, the
/// first such call that has not failed at the target.
#[derive(Clone, Copy)]
pub(super) struct LineHead {
    pub(super) call: WaiterId,
    pub(super) needs: Requirements,
    /// Whether the call has waited for
    /// [`SchedulerSettings::aging`](super::SchedulerSettings::aging), so that other calls may not
    /// take what it lacks.
    pub(super) aged: bool,
}

/// The state that the dispatch order depends on, apart from the queue and the capacity.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) floors: Floors,
    /// What the last [`Selector::pick`] reserved for the first waiting call in order, or `None` if
    /// it reserved nothing.
    pub(super) reservation: Option<HeadReservation>,
    /// See [`SchedulerSettings::aging`](super::SchedulerSettings::aging).
    pub(super) aging: Duration,
}

/// Applies the dispatch order to the waiting calls and the capacity at the time `now`.
#[derive(Debug)]
pub(super) struct Selector<'a, W> {
    pub(super) now: Instant,
    pub(super) queue: &'a mut Queue<W>,
    pub(super) capacity: &'a mut Capacity,
    pub(super) order: &'a mut Order,
}

impl<W> Selector<'_, W> {
    /// Returns the waiting call that is dispatched next, or `None` if no waiting call is
    /// admissible. Leaves the call in the queue, and updates the reservation.
    pub(super) fn pick(&mut self) -> Option<Pick> {
        self.order.reservation = None;
        if !self.capacity.has_slot() {
            return None;
        }
        self.queue.unpark(self.now);
        if self.queue.lanes.is_empty() || self.capacity.upstream.ready(self.now, false).is_err() {
            return None;
        }
        let all = self.capacity.available(self.now);
        let mut pick = None;
        if self.capacity.upstream.is_probing() {
            pick = self.pick_within(Available { unfailed_only: true, ..all.clone() });
        }
        let pick = pick.or_else(|| self.pick_within(all.clone()));
        if pick.is_none() {
            self.record_shortage(&all);
        }
        pick
    }

    /// Returns the next call that fits into `available`, and updates the reservation.
    fn pick_within(&mut self, available: Available) -> Option<Pick> {
        self.order.reservation = self.reserve_for_front(&available);
        let mut available = self.unreserved(available);
        // Memory checks for floors do not use up the checks for the front.
        if let Some(pick) = self.by_floor(&mut available.clone()) {
            return Some(pick);
        }
        self.turns().find_map(|turn| {
            let next = self.first_fit_in_lane(turn.lane, &mut available)?;
            Some(Pick { next, floor: None, is_early: turn.is_early })
        })
    }

    /// Returns a call that fits and whose tenant or lane has fewer slots than are reserved for it
    /// (its floor). A floor of less than one slot is skipped if the last call was dispatched for a
    /// floor.
    fn by_floor(&mut self, available: &mut Available) -> Option<Pick> {
        let skips_rounded = self.order.floors.last_was_for_floor;
        let due = self.under_floor().into_iter().filter(|floor| !(floor.rounded && skips_rounded));
        due.into_iter().find_map(|UnderFloor { holder, .. }| {
            let next = self.first_fit_for(holder, available)?;
            Some(Pick { next, floor: Some(holder), is_early: false })
        })
    }

    /// Returns the first call that fits and counts for the floor of the tenant or lane `holder`.
    pub(super) fn first_fit_for(&mut self, holder: Holder, available: &mut Available) -> Option<FittingCall> {
        match holder {
            Holder::Lane(lane) => self.first_fit_in_lane(lane, available),
            Holder::Tenant(id) => {
                self.turns().find_map(|turn| match self.search_line(id, turn.lane, available) {
                    Some(LineResult::Found(next)) => Some(next),
                    _ => None,
                })
            }
        }
    }

    /// Returns the tenants and lanes that have waiting calls and fewer slots than their floor. See
    /// [`Floors::under`].
    pub(super) fn under_floor(&self) -> Vec<UnderFloor> {
        self.order.floors.under(self.capacity.limits.slots, |holder| match holder {
            Holder::Tenant(id) => {
                self.queue.tenants.get(id).map_or((0, 0), |tenant| (tenant.in_flight, tenant.waiting))
            }
            Holder::Lane(lane) => (self.capacity.by_lane[lane as usize], self.queue.load.waiting(lane)),
        })
    }

    /// Returns the lanes with waiting calls in dispatch order.
    pub(super) fn turns(&mut self) -> impl Iterator<Item = Turn> + use<W> {
        self.queue.lanes.order(self.now, self.order.aging, self.capacity)
    }

    /// Returns the tenant whose calls go before all others of the lane, because it is in debt in
    /// fair queueing and was passed over for long enough (see [`super::lanes`]). Returns `None` if
    /// there is none.
    pub(super) fn debtor(&mut self, lane: Lane) -> Option<TenantId> {
        let id = self.queue.lanes.lane_mut(lane).debtor(self.now, self.order.aging)?;
        let account = &self.queue.line(id, lane)?.account;
        self.queue.lanes.lane(lane).time.is_in_debt(account).then_some(id)
    }

    /// Returns the first call of a lane that fits. Tenants before it that are out of their own
    /// tokens are removed from the dispatch order until they have enough (their lines are parked).
    pub(super) fn first_fit_in_lane(&mut self, lane: Lane, available: &mut Available) -> Option<FittingCall> {
        if let Some(tenant) = self.debtor(lane)
            && let Some(LineResult::Found(next)) = self.search_line(tenant, lane, available)
        {
            return Some(next);
        }
        let mut after: Option<LineKey> = None;
        while let Some(key) = self.queue.lanes.lane(lane).next_fit(after.as_ref(), available) {
            match self.search_line(key.tenant, lane, available) {
                Some(LineResult::Found(next)) => return Some(next),
                Some(LineResult::OutOfTokens(until)) => self.queue.park(self.now, key.tenant, lane, until),
                Some(LineResult::NoneFits(least)) => self.queue.lanes.lane_mut(lane).set(&key, least),
                None => {}
            }
            after = Some(key);
        }
        None
    }

    /// Searches the waiting calls of a tenant in a lane for the first one that fits. Returns `None`
    /// if the tenant has none there, is at its slot cap, or is parked because it is out of its own
    /// tokens.
    fn search_line(&self, tenant: TenantId, lane: Lane, available: &mut Available) -> Option<LineResult> {
        let head = self.head_within(tenant, lane, available)?;
        let tenant = self.queue.tenants.get(tenant)?;
        let line = &tenant.lines[lane as usize];
        let tenant_tokens = tenant.token_room(self.now);
        let behind = self.room_behind(&head, available, tenant_tokens);
        let all = line.calls.least()?;
        // While the target is probed, calls may pass a head that has failed.
        let has_failed = line.position?.head.needs.has_failed;
        let least = if behind.is_some() || has_failed { all } else { head.needs };
        if let Some(until) = self.own_tokens_at(tenant, lane, least.tenant_tokens) {
            return Some(LineResult::OutOfTokens(until));
        }
        if head.needs.fits(available, tenant_tokens) {
            if self.capacity.fits(&self.queue.waiters.get(head.call)?.candidate(), available) {
                return Some(LineResult::Found(FittingCall { call: head.call, kept: None }));
            }
            available.checks.failed(head.needs.need.kv);
        }
        if let Some(mut behind) = behind {
            behind.checks = available.checks;
            let mut after = None;
            while let Some(key @ (_, call)) = line.calls.next_fit(after.as_ref(), &behind, tenant_tokens) {
                after = Some(key);
                let Some(waiter) = self.queue.waiters.get(call).filter(|_| call != head.call) else {
                    continue;
                };
                if self.capacity.fits(&waiter.candidate(), &behind) {
                    return Some(LineResult::Found(FittingCall { call, kept: behind.kept }));
                }
                behind.checks.failed(waiter.needs.need.kv);
            }
            available.checks = behind.checks;
        }
        // If calls can bypass the head, the calls that may be dispatched change with what the head
        // lacks.
        Some(LineResult::NoneFits(if self.capacity.upstream.can_bypass() { all } else { least }))
    }

    /// Returns what is available to the calls behind the first call of a line (the waiting calls of
    /// one tenant in one lane). `tokens` is the number of the tenant's own tokens that one call may
    /// take.
    ///
    /// This is `within` if the first call has not waited for the ageing time, or if it lacks a
    /// slot. If it has, and lacks nothing but memory, the calls behind it may use everything except
    /// the memory of the replica that is kept for it (only at pools). Otherwise, returns `None`:
    /// only the first call may be dispatched.
    pub(super) fn room_behind(&self, head: &LineHead, within: &Available, tokens: u32) -> Option<Available> {
        let Some(room) = within.room_for(&head.needs).filter(|_| head.aged) else {
            return Some(within.clone());
        };
        let upstream = &self.capacity.upstream;
        if !upstream.can_bypass()
            || head.needs.tenant_tokens > tokens
            || !room.has_requests
            || ReservedResources::lacked_by(&head.needs.need, &room, true).has_shared()
        {
            return None;
        }
        let kept = upstream.replica_to_reserve(&self.queue.waiters.get(head.call)?.candidate());
        Some(Available { kept, ..within.clone() })
    }

    /// Returns the first waiting call of a tenant in a lane. Returns `None` if the tenant has none
    /// there, is at its slot cap, or is parked because it is out of its own tokens.
    pub(super) fn line_head(&self, tenant: TenantId, lane: Lane) -> Option<LineHead> {
        let head = self.queue.line(tenant, lane)?.position?.head;
        Some(LineHead { call: head.call, needs: head.needs, aged: self.is_aged(head.age, &head.needs) })
    }

    /// Returns the first waiting call of a tenant in a lane. If `within` excludes calls that have
    /// failed at the target, returns the first one that has not failed, unless all have failed.
    /// Returns `None` in the same cases as [`Selector::line_head`].
    pub(super) fn head_within(&self, tenant: TenantId, lane: Lane, within: &Available) -> Option<LineHead> {
        let head = self.line_head(tenant, lane)?;
        if !(within.unfailed_only && head.needs.has_failed) {
            return Some(head);
        }
        let unfailed = Available { unfailed_only: true, ..Available::UNBOUNDED };
        let calls = &self.queue.line(tenant, lane)?.calls;
        let Some((_, call)) = calls.next_fit(None, &unfailed, u32::MAX) else { return Some(head) };
        let waiter = self.queue.waiters.get(call)?;
        Some(LineHead {
            call,
            needs: waiter.needs,
            aged: self.is_aged(waiter.ticket.queued_at, &waiter.needs),
        })
    }

    /// Returns `true` if a call that was queued at `queued_at` has waited for the ageing time, so
    /// that other calls may not take what it lacks. A call that is estimated to exceed a budget or
    /// the memory even when unused never ages: the others would stand still for it.
    fn is_aged(&self, queued_at: Instant, needs: &Requirements) -> bool {
        self.now.saturating_duration_since(queued_at) >= self.order.aging
            && !self.capacity.is_exceeded_by(&needs.need)
    }

    /// Returns the waiting call that is first in the dispatch order. Returns `None` if there is
    /// none, not counting calls of tenants that are at their slot cap or out of their own tokens.
    /// Tenants before the call that are out of their own tokens are removed from the order until
    /// they have enough (their lines are parked).
    fn front(&mut self) -> Option<LineHead> {
        loop {
            let lane = self.turns().next()?.lane;
            let tenant = self.debtor(lane).or_else(|| self.queue.lanes.lane(lane).first())?;
            match self.out_of_tokens_until(tenant, lane) {
                Some(until) => self.queue.park(self.now, tenant, lane, until),
                None => return self.line_head(tenant, lane),
            }
        }
    }

    /// Returns when the tenant will have enough tokens of its own for at least one of its calls in
    /// the lane that may be dispatched. Returns `None` if it has enough now.
    fn out_of_tokens_until(&self, tenant: TenantId, lane: Lane) -> Option<Instant> {
        let head = self.line_head(tenant, lane)?;
        let tenant = self.queue.tenants.get(tenant)?;
        let alone = head.aged && !self.capacity.upstream.can_bypass();
        let least = if alone { head.needs } else { tenant.lines[lane as usize].calls.least()? };
        self.own_tokens_at(tenant, lane, least.tenant_tokens)
    }

    /// Returns when the tenant will have so many tokens of its own for a call in the lane. Returns
    /// `None` if it has them now.
    pub(super) fn own_tokens_at(&self, tenant: &Tenant, lane: Lane, tokens: u32) -> Option<Instant> {
        let own = tenant.tokens.as_ref()?;
        let lacking_until = (tokens > own.room(self.now)).then(|| own.ready_at(self.now, tokens));
        lacking_until.max(self.tokens_kept_until(tenant, lane))
    }

    /// Returns when the tenant will have enough of its own tokens for the first call of a lane
    /// above `lane` for which they are kept, because it is aged and lacks them. Returns `None` if
    /// there is no such call. None are kept for a call that will have enough only after its
    /// deadline, or that has failed at the target while the target is probed. (A line that was
    /// parked for such a call before stays parked until then.)
    fn tokens_kept_until(&self, tenant: &Tenant, lane: Lane) -> Option<Instant> {
        let tokens = tenant.tokens.as_ref()?;
        let higher = tenant.lines.iter().take(lane as usize);
        let is_probing = self.capacity.upstream.is_probing();
        let kept_until = higher.filter_map(|line| {
            let ((_, call), needs) = line.calls.first()?;
            let ticket = &self.queue.waiters.get(call)?.ticket;
            let is_kept = self.is_aged(ticket.queued_at, &needs)
                && needs.tenant_tokens > tokens.room(self.now)
                && !(is_probing && needs.has_failed);
            let ready = is_kept.then(|| tokens.ready_at(self.now, needs.tenant_tokens))?;
            (ready <= ticket.deadline).then_some(ready)
        });
        kept_until.max()
    }

    /// Returns what must be reserved for the first waiting call in order. Returns `None` if that
    /// call has not waited for the ageing time, if it fits, if it lacks a slot, or if it lacks
    /// tokens until after its deadline.
    pub(super) fn reserve_for_front(&mut self, available: &Available) -> Option<HeadReservation> {
        if !self.capacity.is_sized() {
            return None;
        }
        let head = self.front().filter(|head| head.aged)?;
        // If only a slot is missing, nothing is reserved: the next released slot goes to the front
        // or to a call before it.
        let room = available.room_for(&head.needs)?;
        let (call, upstream) = (self.queue.waiters.get(head.call)?.candidate(), &self.capacity.upstream);
        let memory = upstream.has_memory(&call, available);
        if memory && available.fits(&head.needs) {
            return None;
        }
        // What becomes available only after the deadline of the front is not reserved.
        let ready = self.capacity.ready_at(self.now, &head.needs.need, &room).filter(|_| memory);
        let in_time = ready.is_none_or(|at| at <= call.ticket.deadline);
        let mut reserved = ReservedResources::lacked_by(&head.needs.need, &room, memory);
        if upstream.can_bypass() {
            reserved = reserved.at(upstream.replica_to_reserve(&call));
        }
        (in_time && (reserved != ReservedResources::default() || !room.has_requests))
            .then_some(HeadReservation { call: head.call, resources: reserved })
    }

    /// Returns `available` without the resources that are reserved for the first waiting call in
    /// dispatch order.
    pub(super) fn unreserved(&self, available: Available) -> Available {
        let Some(HeadReservation { resources: reserved, .. }) = &self.order.reservation else {
            return available;
        };
        let shared = reserved.remaining(available.shared);
        let Capacity { upstream, in_flight, .. } = &*self.capacity;
        let replicas = match reserved.at {
            Some(_) => upstream.replicas(Some(*in_flight), reserved.at),
            None => available.replicas,
        };
        Available { shared, replicas, ..available }
    }

    /// Records which requirement keeps the first waiting call in order from being dispatched.
    /// Called if no call can be dispatched although slots are free.
    fn record_shortage(&mut self, available: &Available) {
        if !self.capacity.is_sized() {
            return;
        }
        let lack = self.front().and_then(|head| {
            let front = self.queue.waiters.get(head.call)?.candidate();
            self.capacity.budgets.want(self.now, &front.needs.need);
            Some(self.capacity.lacking(self.now, &front, available)?.0)
        });
        self.capacity.record_shortage(self.now, lack, self.order.reservation.is_some());
    }

    /// Returns what is available to a new call. Returns `None` if the call does not fit, or if a
    /// waiting call goes first.
    pub(super) fn available_to_new(&mut self, call: &Candidate<'_>) -> Option<Available> {
        let Candidate { tenant: id, ticket, needs } = *call;
        let tenant = self.queue.tenants.get(id)?;
        let tenant_tokens = tenant.token_room(self.now);
        let free = self.capacity.has_slot() && !tenant.is_barred();
        let line = &tenant.lines[ticket.lane as usize];
        let first = line.calls.is_empty();
        // A probe does not queue behind calls that have failed here.
        let leads = || {
            self.capacity.upstream.is_probing() && line.calls.least().is_some_and(|least| least.has_failed)
        };
        if !(free
            && self.own_tokens_at(tenant, ticket.lane, needs.tenant_tokens).is_none()
            && (first || leads() || self.capacity.upstream.can_bypass()))
        {
            return None;
        }
        let mut available = self.left_by_waiting()?;
        if !first {
            let head = self.line_head(id, ticket.lane)?;
            available = self.room_behind(&head, &available, tenant_tokens)?;
        }
        self.capacity.fits(call, &available).then_some(available)
    }

    /// Returns what is available to a new call, without what is reserved for waiting calls. Returns
    /// `None` if a waiting call goes first.
    fn left_by_waiting(&mut self) -> Option<Available> {
        // While the target is probed, a free slot is not enough.
        if !self.capacity.is_sized() && !self.capacity.upstream.is_probing() {
            return self.queue.lanes.is_empty().then_some(Available::UNBOUNDED);
        }
        self.queue.unpark(self.now);
        // If a waiting call is admissible, the driver dispatches it first. The others may be
        // overtaken.
        let alone = self.queue.lanes.is_empty();
        if !alone && self.pick().is_some() {
            return None;
        }
        let available = self.capacity.available(self.now);
        Some(if alone { available } else { self.unreserved(available) })
    }
}
