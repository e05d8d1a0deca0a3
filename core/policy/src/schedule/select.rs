//! Selection of the next call.
//!
//! # Order
//!
//! 1. Tenants, then lanes, that hold fewer slots than their floor, the least served first.
//! 2. The *front*: the first call of the line that fair queueing puts first, in the lane whose turn
//!    it is ([`super::lanes`]).
//! 3. If the front does not fit: the first call that fits in its line, then in its lane, then in
//!    the other lanes. If the front is *aged*, that is, has waited for `aging`, what it lacks is
//!    *reserved*: no other call may take of it, floor or not.
//!
//! If the head of a line is aged, only the head of that line may go. At a pool, the calls behind it
//! may go where they take nothing that the head lacks: anywhere if no eligible replica has a slot,
//! and anywhere but at the one replica that is kept for the head if it only lacks memory. A line
//! whose tenant is out of tokens is parked, and holds nobody up.
//!
//! If the next call is a probe of a target that is down, calls that have failed here are excluded,
//! unless no other call can go.
//!
//! # Cost of a decision
//!
//! Whether the engine's memory has room for a call is known only after looking at that call. To
//! bound a decision, it ends after [`LOOKS`](super::available) calls without room. After half of
//! them, only calls with a shorter prompt than all of those are looked at. Floors have looks of
//! their own, so that the front is always looked at.

use std::time::{Duration, Instant};

use super::Ticket;
use super::available::Available;
use super::capacity::Capacity;
use super::floors::{Floors, Holder, UnderFloor};
use super::ids::{TenantId, WaiterId};
use super::lanes::{self, Turn};
use super::queue::Queue;
use super::requirements::{Requirements, ReservedResources};
use crate::Lane;

/// What is reserved for the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadReservation {
    pub(super) call: WaiterId,
    pub(super) resources: ReservedResources,
}

/// The call that is dispatched next.
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) next: Next,
    pub(super) basis: DispatchBasis,
}

/// Why a call is dispatched before others.
#[derive(Clone, Copy, Debug)]
pub(super) enum DispatchBasis {
    /// Its tenant or lane is below its floor.
    Floor(Holder),
    /// It is its lane's turn.
    Turn(Turn),
}

/// A call that fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) call: WaiterId,
    /// The replica whose memory is kept for the head of the call's line.
    pub(super) kept: Option<usize>,
}

/// The result of looking for a call in a line.
enum Offer {
    Goes(Next),
    /// The tenant is out of tokens for all calls until then.
    OutOfTokens(Instant),
    /// No call fits. Holds the least that a call that may go requires.
    Nothing(Requirements),
}

/// The first call of a line.
#[derive(Clone, Copy)]
pub(super) struct LineHead {
    pub(super) call: WaiterId,
    pub(super) needs: Requirements,
    pub(super) aged: bool,
}

/// The state of the dispatch order, apart from the queue and the capacity.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) floors: Floors,
    /// The reservation for the front, as of the last [`Selector::pick`].
    pub(super) reservation: Option<HeadReservation>,
    /// See [`Settings::aging`](super::Settings::aging).
    pub(super) aging: Duration,
}

/// Applies the order to the queue and the capacity at one moment.
#[derive(Debug)]
pub(super) struct Selector<'a, W> {
    pub(super) now: Instant,
    pub(super) queue: &'a mut Queue<W>,
    pub(super) capacity: &'a mut Capacity,
    pub(super) order: &'a mut Order,
}

impl<W> Selector<'_, W> {
    /// Returns the call that may go now. The call stays in the queue.
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
            self.note_lack(&all);
        }
        pick
    }

    /// Returns the call that may go within what is available.
    fn pick_within(&mut self, available: Available) -> Option<Pick> {
        self.order.reservation = self.reserve_for_front(&available);
        let mut available = self.less_reserved(available);
        // Calls looked at for a floor do not count against the front.
        self.by_floor(&mut available.clone()).or_else(|| self.by_turn(&mut available))
    }

    fn by_turn(&mut self, available: &mut Available) -> Option<Pick> {
        self.turns().find_map(|turn| {
            let next = self.first_in(turn.lane, available)?;
            Some(Pick { next, basis: DispatchBasis::Turn(turn) })
        })
    }

    /// Returns a call of a tenant or lane below its floor.
    fn by_floor(&mut self, available: &mut Available) -> Option<Pick> {
        let had = self.order.floors.was_last();
        let under = self.under_floor();
        let due = under.into_iter().filter(|floor| !(floor.rounded && had));
        due.into_iter().find_map(|UnderFloor { holder, .. }| {
            let next = self.first_for(holder, available)?;
            Some(Pick { next, basis: DispatchBasis::Floor(holder) })
        })
    }

    /// Returns the first call that fits and counts for the holder's floor.
    pub(super) fn first_for(&mut self, holder: Holder, available: &mut Available) -> Option<Next> {
        match holder {
            Holder::Tenant(tenant) => self.first_of(tenant, available),
            Holder::Lane(lane) => self.first_in(lane, available),
        }
    }

    /// Returns the holders below their floors. See [`Floors::under`].
    pub(super) fn under_floor(&self) -> Vec<UnderFloor> {
        self.order.floors.under(self.capacity.slots(), |holder| match holder {
            Holder::Tenant(id) => {
                self.queue.tenants.get(id).map_or((0, 0), |tenant| (tenant.in_flight, tenant.waiting))
            }
            Holder::Lane(lane) => (self.capacity.in_flight_of(lane), self.queue.load.waiting(lane)),
        })
    }

    pub(super) fn turns(&mut self) -> impl Iterator<Item = Turn> + use<W> {
        self.queue.lanes.order(self.now, self.order.aging, &self.capacity.slot_use())
    }

    /// Returns the tenant in debt whose line goes before the first line of the lane.
    pub(super) fn debtor(&mut self, lane: Lane) -> Option<TenantId> {
        let id = self.queue.lanes.debtor(self.now, self.order.aging, lane)?;
        let account = &self.queue.tenants.get(id)?.lines[lane as usize].account;
        self.queue.lanes.time(lane).is_owed(account).then_some(id)
    }

    /// Returns the first call of a lane that fits.
    pub(super) fn first_in(&mut self, lane: Lane, available: &mut Available) -> Option<Next> {
        if let Some(tenant) = self.debtor(lane)
            && let Some(Offer::Goes(next)) = self.offer(tenant, lane, available)
        {
            return Some(next);
        }
        let mut after: Option<lanes::LineKey> = None;
        while let Some(key) = self.queue.lanes.next_fit(lane, after.as_ref(), available) {
            match self.offer(key.tenant, lane, available) {
                Some(Offer::Goes(next)) => return Some(next),
                Some(Offer::OutOfTokens(until)) => self.queue.park(self.now, key.tenant, lane, until),
                Some(Offer::Nothing(least)) => self.queue.lanes.set(lane, &key, least),
                None => {}
            }
            after = Some(key);
        }
        None
    }

    /// Returns the first call of a tenant that fits, from the line that would go first.
    pub(super) fn first_of(&mut self, tenant: TenantId, available: &mut Available) -> Option<Next> {
        self.turns().find_map(|turn| match self.offer(tenant, turn.lane, available) {
            Some(Offer::Goes(next)) => Some(next),
            _ => None,
        })
    }

    /// Looks for a call of a line that fits. Returns `None` if the line is not ready.
    fn offer(&self, tenant: TenantId, lane: Lane, available: &mut Available) -> Option<Offer> {
        let head = self.head_within(tenant, lane, available)?;
        let tenant = self.queue.tenants.get(tenant)?;
        let line = &tenant.lines[lane as usize];
        let tenant_tokens = tenant.token_room(self.now);
        let behind =
            if head.aged { self.behind(&head, available, tenant_tokens) } else { Some(available.clone()) };
        let all = line.calls.least()?;
        // While the target is probed, calls may pass a head that has failed.
        let has_failed = line.position?.head.needs.has_failed;
        let least = if behind.is_some() || has_failed { all } else { head.needs };
        if least.tenant_tokens > tenant_tokens {
            return tenant
                .tokens
                .as_ref()
                .map(|bucket| Offer::OutOfTokens(bucket.ready_at(self.now, least.tenant_tokens)));
        }
        if head.needs.fits(available, tenant_tokens) {
            if self.capacity.fits(&head.needs, &self.queue.waiters.get(head.call)?.ticket, available) {
                return Some(Offer::Goes(Next { call: head.call, kept: None }));
            }
            available.looks.failed(head.needs.need.kv);
        }
        if let Some(mut behind) = behind {
            behind.looks = available.looks;
            let mut after = None;
            while let Some(key @ (_, call)) = line.calls.next_fit(after.as_ref(), &behind, tenant_tokens) {
                after = Some(key);
                let Some(waiter) = self.queue.waiters.get(call).filter(|_| call != head.call) else {
                    continue;
                };
                if self.capacity.fits(&waiter.needs, &waiter.ticket, &behind) {
                    return Some(Offer::Goes(Next { call, kept: behind.kept }));
                }
                behind.looks.failed(waiter.needs.need.kv);
            }
            available.looks = behind.looks;
        }
        // If calls can bypass the head, which calls may go changes with what the head lacks.
        Some(Offer::Nothing(if self.capacity.upstream.can_bypass() { all } else { least }))
    }

    /// Returns what is left for the calls behind an aged head, or `None` if only the head may go.
    pub(super) fn behind(
        &self,
        head: &LineHead,
        available: &Available,
        tenant_tokens: u32,
    ) -> Option<Available> {
        let Some(room) = available.of(&head.needs) else { return Some(available.clone()) };
        if head.needs.tenant_tokens > tenant_tokens
            || !room.has_requests
            || ReservedResources::lacking(&head.needs.need, &room, true).of_all()
        {
            return None;
        }
        let ticket = &self.queue.waiters.get(head.call)?.ticket;
        self.capacity.upstream.left_behind(&head.needs, ticket, available)
    }

    /// Returns the head of a line, or `None` if the line is not ready.
    pub(super) fn line_head(&self, tenant: TenantId, lane: Lane) -> Option<LineHead> {
        let head = self.queue.tenants.get(tenant)?.lines[lane as usize].position?.head;
        Some(LineHead { call: head.call, needs: head.needs, aged: self.is_aged(head.age) })
    }

    /// Returns the first call of a line that is not excluded, or its head if all are. Returns
    /// `None` if the line is not ready.
    pub(super) fn head_within(
        &self,
        tenant: TenantId,
        lane: Lane,
        available: &Available,
    ) -> Option<LineHead> {
        let head = self.line_head(tenant, lane)?;
        if !(available.unfailed_only && head.needs.has_failed) {
            return Some(head);
        }
        let unfailed = Available { unfailed_only: true, ..Available::UNBOUNDED };
        let calls = &self.queue.tenants.get(tenant)?.lines[lane as usize].calls;
        let Some((_, call)) = calls.next_fit(None, &unfailed, u32::MAX) else { return Some(head) };
        let waiter = self.queue.waiters.get(call)?;
        Some(LineHead { call, needs: waiter.needs, aged: self.is_aged(waiter.ticket.queued_at) })
    }

    /// Returns `true` if a call queued at that time has waited for the ageing time.
    fn is_aged(&self, queued_at: Instant) -> bool {
        self.now.saturating_duration_since(queued_at) >= self.order.aging
    }

    /// Returns the lane and tenant of the front. Parks lines whose tenants are out of tokens.
    pub(super) fn front(&mut self) -> Option<(Lane, TenantId)> {
        loop {
            let lane = self.turns().next()?.lane;
            let tenant = self.debtor(lane).or_else(|| self.queue.lanes.first(lane))?;
            match self.out_of_tokens_until(tenant, lane) {
                Some(until) => self.queue.park(self.now, tenant, lane, until),
                None => return Some((lane, tenant)),
            }
        }
    }

    /// Returns when the tenant has enough tokens for a call of the line that may go, or `None` if
    /// it has them now.
    fn out_of_tokens_until(&self, tenant: TenantId, lane: Lane) -> Option<Instant> {
        let head = self.line_head(tenant, lane)?;
        let tenant = self.queue.tenants.get(tenant)?;
        let tenant_tokens = tenant.tokens.as_ref()?;
        let alone = head.aged && !self.capacity.upstream.can_bypass();
        let least = if alone {
            head.needs.tenant_tokens
        } else {
            tenant.lines[lane as usize].calls.least()?.tenant_tokens
        };
        (least > tenant_tokens.room(self.now)).then(|| tenant_tokens.ready_at(self.now, least))
    }

    /// Returns what to reserve for the front, if the front is aged and does not fit.
    pub(super) fn reserve_for_front(&mut self, available: &Available) -> Option<HeadReservation> {
        if !self.capacity.is_sized() {
            return None;
        }
        let (lane, tenant) = self.front()?;
        let head = self.line_head(tenant, lane).filter(|head| head.aged)?;
        // If only a slot is missing, nothing is reserved: the next released slot goes to the front
        // or to a call before it.
        let room = available.of(&head.needs)?;
        let ticket = &self.queue.waiters.get(head.call)?.ticket;
        let memory = self.capacity.upstream.has_memory(&head.needs, ticket, available);
        if memory && available.fit(&head.needs) {
            return None;
        }
        // What becomes available only after the deadline of the front is not reserved.
        let ready = self.capacity.ready_at(self.now, &head.needs.need, &room).filter(|_| memory);
        let in_time = ready.is_none_or(|at| at <= ticket.deadline);
        let held = ReservedResources::lacking(&head.needs.need, &room, memory);
        let held = self.capacity.upstream.narrow(held, &head.needs, ticket);
        (in_time && (held != ReservedResources::default() || !room.has_requests))
            .then_some(HeadReservation { call: head.call, resources: held })
    }

    /// Returns what is left beside the reservation.
    pub(super) fn less_reserved(&self, available: Available) -> Available {
        self.capacity.less_reserved(available, self.order.reservation.as_ref())
    }

    /// Records what the front lacks if no call can go although slots are free.
    fn note_lack(&mut self, available: &Available) {
        if !self.capacity.is_sized() {
            return;
        }
        let front = self.front().and_then(|(lane, tenant)| self.line_head(tenant, lane));
        let lack = front.and_then(|head| {
            let ticket = &self.queue.waiters.get(head.call)?.ticket;
            self.capacity.lacking(self.now, &head.needs, ticket, available)
        });
        let lack = lack.map(|(rule, _)| rule);
        self.capacity.note_lack(self.now, lack, self.order.reservation.is_some());
    }

    /// Returns what is available to a new call, if the call fits and no waiting call goes before
    /// it.
    pub(super) fn available_to(
        &mut self,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
    ) -> Option<Available> {
        let tenant = self.queue.tenants.get(id)?;
        let tenant_tokens = tenant.token_room(self.now);
        let free = self.capacity.has_slot() && !tenant.is_capped();
        let line = &tenant.lines[ticket.lane as usize];
        let first = line.calls.is_empty();
        // A probe does not queue behind calls that have failed here.
        let leads = || {
            self.capacity.upstream.is_probing() && line.calls.least().is_some_and(|least| least.has_failed)
        };
        if !(free
            && needs.tenant_tokens <= tenant_tokens
            && (first || leads() || self.capacity.upstream.can_bypass()))
        {
            return None;
        }
        let mut available = self.left_for_new()?;
        if !first {
            let head = self.line_head(id, ticket.lane)?;
            available = if head.aged { self.behind(&head, &available, tenant_tokens)? } else { available };
        }
        self.capacity.fits(needs, ticket, &available).then_some(available)
    }

    /// Returns what the waiting calls leave to a new one, or `None` if one of them goes first.
    fn left_for_new(&mut self) -> Option<Available> {
        // While the target is probed, a free slot is not enough.
        if !self.capacity.is_sized() && !self.capacity.upstream.is_probing() {
            return self.queue.lanes.is_empty().then_some(Available::UNBOUNDED);
        }
        self.queue.unpark(self.now);
        // Waiting calls that may go are dispatched first by the driver. The others may be
        // overtaken.
        let alone = self.queue.lanes.is_empty();
        if !alone && self.pick().is_some() {
            return None;
        }
        let available = self.capacity.available(self.now);
        Some(if alone { available } else { self.less_reserved(available) })
    }
}
