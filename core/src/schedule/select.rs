//! Who goes next.
//!
//! 1. Tenants, then lanes, that hold fewer slots than their floor, the least served first.
//! 2. The *front*: of the lane whose turn it is ([`super::lanes`]), of the line that fair queueing puts first, the first call.
//! 3. Where the front does not fit: the first that does, inside its line, its lane, the other lanes. Unless the front is aged, that is, has
//!    waited for `aging`: then what it lacks is *held*, and nobody who would take of it goes, floor or not.
//!
//! Whether the engine's memory has room for a call is only known when the call is looked at. So that a decision takes no longer however
//! many wait, it ends after [`LOOKS`](super::available) of them that have no room: behind half as many, only those with a shorter prompt
//! than each of those are looked at. Floors have looks of their own, so that the front is always looked at.
//!
//! Of a line whose head is aged only the head goes. At a pool the others go where they take nothing that it lacks: where none of the replicas that may take it has a slot,
//! anywhere; where all that it lacks is memory, anywhere but at the one replica that is kept for it. A tenant without tokens of its own holds nobody up: its line stands
//! aside until it has some.
//!
//! If what goes is a probe of a target that is down, the calls that have failed here are left out, as if they did not wait, unless nobody else can go.

use std::time::{Duration, Instant};

use super::Ticket;
use super::available::Available;
use super::capacity::Capacity;
use super::floors::{Floors, Holder, UnderFloor};
use super::ids::{TenantId, WaiterId};
use super::lanes::{self, Turn};
use super::queue::Queue;
use super::requirements::{Requirements, ReservedResources};
use crate::context::Lane;

/// What is kept for the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadReservation {
    pub(super) call: WaiterId,
    pub(super) resources: ReservedResources,
}

/// The call that goes.
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) next: Next,
    pub(super) basis: DispatchBasis,
}

/// By what right a call goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum DispatchBasis {
    /// Somebody's floor.
    Floor(Holder),
    /// Its lane's turn.
    Turn(Turn),
}

/// A call that fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) call: WaiterId,
    /// The replica whose memory is kept for the head of its line.
    pub(super) kept: Option<usize>,
}

/// What a line has to offer.
enum Offer {
    Goes(Next),
    /// Its tenant has no tokens of its own for any of them until then.
    OutOfTokens(Instant),
    /// Nothing that fits; and the least that one that may go takes.
    Nothing(Requirements),
}

/// A line's head.
#[derive(Clone, Copy)]
pub(super) struct LineHead {
    pub(super) call: WaiterId,
    pub(super) requirements: Requirements,
    pub(super) aged: bool,
}

/// What the order of dispatch depends on beside the queue and the capacity.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) floors: Floors,
    /// What is held for the front, as of the last [`Selector::pick`].
    pub(super) reservation: Option<HeadReservation>,
    /// See [`Settings::aging`](super::Settings::aging).
    pub(super) aging: Duration,
}

/// Applies the order to what waits and what there is, at one moment.
#[derive(Debug)]
pub(super) struct Selector<'a, W> {
    pub(super) now: Instant,
    pub(super) queue: &'a mut Queue<W>,
    pub(super) capacity: &'a mut Capacity,
    pub(super) order: &'a mut Order,
}

impl<W> Selector<'_, W> {
    /// The call that goes now, where one may. It stays where it is.
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

    /// The same, where there is so much to take.
    fn pick_within(&mut self, available: Available) -> Option<Pick> {
        self.order.reservation = self.reserve_for_front(&available);
        let mut available = self.less_reserved(available);
        // What was looked at for a floor does not count against the front.
        self.by_floor(&mut available.clone()).or_else(|| self.by_turn(&mut available))
    }

    fn by_turn(&mut self, available: &mut Available) -> Option<Pick> {
        self.turns().find_map(|turn| {
            let next = self.first_in(turn.lane, available)?;
            Some(Pick { next, basis: DispatchBasis::Turn(turn) })
        })
    }

    /// The call that goes because its tenant or its lane holds less than its floor.
    fn by_floor(&mut self, available: &mut Available) -> Option<Pick> {
        let had = self.order.floors.was_last();
        let under = self.under_floor();
        let due = under.into_iter().filter(|floor| !(floor.rounded && had));
        due.into_iter().find_map(|UnderFloor { holder, .. }| {
            let next = self.first_for(holder, available)?;
            Some(Pick { next, basis: DispatchBasis::Floor(holder) })
        })
    }

    /// The first call that fits of those that a floor is for.
    pub(super) fn first_for(&mut self, holder: Holder, available: &mut Available) -> Option<Next> {
        match holder {
            Holder::Tenant(tenant) => self.first_of(tenant, available),
            Holder::Lane(lane) => self.first_in(lane, available),
        }
    }

    /// See [`Floors::under`].
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

    /// The tenant in debt whose line goes before the lane's first.
    pub(super) fn debtor(&mut self, lane: Lane) -> Option<TenantId> {
        let id = self.queue.lanes.debtor(self.now, self.order.aging, lane)?;
        let account = &self.queue.tenants.get(id)?.lines[lane as usize].account;
        self.queue.lanes.time(lane).is_owed(account).then_some(id)
    }

    /// The first call of a lane that fits.
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

    /// The first call of a tenant that fits, of whichever of its lines would go first.
    pub(super) fn first_of(&mut self, tenant: TenantId, available: &mut Available) -> Option<Next> {
        self.turns().find_map(|turn| match self.offer(tenant, turn.lane, available) {
            Some(Offer::Goes(next)) => Some(next),
            _ => None,
        })
    }

    /// `None`: the line does not stand.
    fn offer(&self, tenant: TenantId, lane: Lane, available: &mut Available) -> Option<Offer> {
        let head = self.head_within(tenant, lane, available)?;
        let tenant = self.queue.tenants.get(tenant)?;
        let line = &tenant.lines[lane as usize];
        let tenant_tokens = tenant.token_room(self.now);
        let behind =
            if head.aged { self.behind(&head, available, tenant_tokens) } else { Some(available.clone()) };
        let all = line.calls.least()?;
        // While the target is probed, calls pass a head that has failed.
        let has_failed = line.position?.head.requirements.has_failed;
        let least = if behind.is_some() || has_failed { all } else { head.requirements };
        if least.tenant_tokens > tenant_tokens {
            return tenant
                .tokens
                .as_ref()
                .map(|bucket| Offer::OutOfTokens(bucket.ready_at(self.now, least.tenant_tokens)));
        }
        if head.requirements.fits(available, tenant_tokens) {
            if self.capacity.fits(&head.requirements, &self.queue.waiters.get(head.call)?.ticket, available) {
                return Some(Offer::Goes(Next { call: head.call, kept: None }));
            }
            available.looks.failed(head.requirements.need.kv);
        }
        if let Some(mut behind) = behind {
            behind.looks = available.looks;
            let mut after = None;
            while let Some(key @ (_, call)) = line.calls.next_fit(after.as_ref(), &behind, tenant_tokens) {
                after = Some(key);
                let Some(waiter) = self.queue.waiters.get(call).filter(|_| call != head.call) else {
                    continue;
                };
                if self.capacity.fits(&waiter.requirements, &waiter.ticket, &behind) {
                    return Some(Offer::Goes(Next { call, kept: behind.kept }));
                }
                behind.looks.failed(waiter.requirements.need.kv);
            }
            available.looks = behind.looks;
        }
        // Where calls may pass the head, what it lacks changes, and with it who may.
        Some(Offer::Nothing(if self.capacity.upstream.can_bypass() { all } else { least }))
    }

    /// What is left for those behind an aged head. `None`: nothing; only the head goes.
    pub(super) fn behind(
        &self,
        head: &LineHead,
        available: &Available,
        tenant_tokens: u32,
    ) -> Option<Available> {
        let Some(room) = available.of(&head.requirements) else { return Some(available.clone()) };
        if head.requirements.tenant_tokens > tenant_tokens
            || !room.open
            || ReservedResources::lacking(&head.requirements.need, &room, true).of_all()
        {
            return None;
        }
        let ticket = &self.queue.waiters.get(head.call)?.ticket;
        self.capacity.upstream.left_behind(&head.requirements, ticket, available)
    }

    /// `None`: the line does not stand.
    pub(super) fn line_head(&self, tenant: TenantId, lane: Lane) -> Option<LineHead> {
        let head = self.queue.tenants.get(tenant)?.lines[lane as usize].position?.head;
        Some(LineHead { call: head.call, requirements: head.requirements, aged: self.is_aged(head.age) })
    }

    /// Returns the first call of a line that the rooms do not exclude, or its head if they exclude
    /// all. `None`: the line does not stand.
    pub(super) fn head_within(
        &self,
        tenant: TenantId,
        lane: Lane,
        available: &Available,
    ) -> Option<LineHead> {
        let head = self.line_head(tenant, lane)?;
        if !(available.unfailed_only && head.requirements.has_failed) {
            return Some(head);
        }
        let unfailed = Available { unfailed_only: true, ..Available::UNBOUNDED };
        let calls = &self.queue.tenants.get(tenant)?.lines[lane as usize].calls;
        let Some((_, call)) = calls.next_fit(None, &unfailed, u32::MAX) else { return Some(head) };
        let waiter = self.queue.waiters.get(call)?;
        Some(LineHead {
            call,
            requirements: waiter.requirements,
            aged: self.is_aged(waiter.ticket.queued_at),
        })
    }

    /// Returns `true` if a call queued at that time has waited for the ageing time.
    fn is_aged(&self, queued_at: Instant) -> bool {
        self.now.saturating_duration_since(queued_at) >= self.order.aging
    }

    /// The lane and the tenant that are to go next, if the head of the line fits. Lines without tokens of their own stand aside.
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

    /// When a line's tenant has tokens of its own again for a call of it that may go; `None`: it has.
    fn out_of_tokens_until(&self, tenant: TenantId, lane: Lane) -> Option<Instant> {
        let head = self.line_head(tenant, lane)?;
        let tenant = self.queue.tenants.get(tenant)?;
        let tenant_tokens = tenant.tokens.as_ref()?;
        let alone = head.aged && !self.capacity.upstream.can_bypass();
        let least = if alone {
            head.requirements.tenant_tokens
        } else {
            tenant.lines[lane as usize].calls.least()?.tenant_tokens
        };
        (least > tenant_tokens.room(self.now)).then(|| tenant_tokens.ready_at(self.now, least))
    }

    /// What the front lacks and is to have before others, if it is aged.
    pub(super) fn reserve_for_front(&mut self, available: &Available) -> Option<HeadReservation> {
        if !self.capacity.is_sized() {
            return None;
        }
        let (lane, tenant) = self.front()?;
        let head = self.line_head(tenant, lane).filter(|head| head.aged)?;
        // Where only a slot is lacking there is nothing to hold: the first slot that comes free is its own, or goes to whom goes before it.
        let room = available.of(&head.requirements)?;
        let ticket = &self.queue.waiters.get(head.call)?.ticket;
        let memory = self.capacity.upstream.has_memory(&head.requirements, ticket, available);
        if memory && available.fit(&head.requirements) {
            return None;
        }
        // What will not be there before the call has gone would be kept for nobody.
        let ready = self.capacity.ready_at(self.now, &head.requirements.need, &room).filter(|_| memory);
        let in_time = ready.is_none_or(|at| at <= ticket.deadline);
        let held = ReservedResources::lacking(&head.requirements.need, &room, memory);
        let held = self.capacity.upstream.narrow(held, &head.requirements, ticket);
        (in_time && (held != ReservedResources::default() || !room.open))
            .then_some(HeadReservation { call: head.call, resources: held })
    }

    /// What is left beside what is held.
    pub(super) fn less_reserved(&self, available: Available) -> Available {
        self.capacity.less_reserved(available, self.order.reservation.as_ref())
    }

    /// Notes what stands in the way of the front, where nobody can go though slots are free.
    fn note_lack(&mut self, available: &Available) {
        if !self.capacity.is_sized() {
            return;
        }
        let front = self.front().and_then(|(lane, tenant)| self.line_head(tenant, lane));
        let lack = front.and_then(|head| {
            let ticket = &self.queue.waiters.get(head.call)?.ticket;
            self.capacity.lacking(self.now, &head.requirements, ticket, available)
        });
        let lack = lack.map(|(rule, _)| rule);
        self.capacity.note_lack(self.now, lack, self.order.reservation.is_some());
    }

    /// Returns what a new call could take, if it fits beside the calls that wait and none of them
    /// goes before it.
    pub(super) fn available_to(
        &mut self,
        id: TenantId,
        ticket: &Ticket,
        requirements: &Requirements,
    ) -> Option<Available> {
        let tenant = self.queue.tenants.get(id)?;
        let tenant_tokens = tenant.token_room(self.now);
        let free = self.capacity.has_slot() && !tenant.is_capped();
        let line = &tenant.lines[ticket.lane as usize];
        let first = line.calls.is_empty();
        // Nor need a probe queue behind calls that have failed here.
        let leads = || {
            self.capacity.upstream.is_probing() && line.calls.least().is_some_and(|least| least.has_failed)
        };
        if !(free
            && requirements.tenant_tokens <= tenant_tokens
            && (first || leads() || self.capacity.upstream.can_bypass()))
        {
            return None;
        }
        let mut available = self.left_for_new()?;
        if !first {
            let head = self.line_head(id, ticket.lane)?;
            available = if head.aged { self.behind(&head, &available, tenant_tokens)? } else { available };
        }
        self.capacity.fits(requirements, ticket, &available).then_some(available)
    }

    /// What those who wait leave to one that does not. `None`: one of them goes before it.
    fn left_for_new(&mut self) -> Option<Available> {
        // While a target is probed, not every call that has a slot may go.
        if !self.capacity.is_sized() && !self.capacity.upstream.is_probing() {
            return self.queue.lanes.is_empty().then_some(Available::UNBOUNDED);
        }
        self.queue.unpark(self.now);
        // Whoever could go is let go first, by the driver; who could not is overtaken, as in the queue.
        let alone = self.queue.lanes.is_empty();
        if !alone && self.pick().is_some() {
            return None;
        }
        let available = self.capacity.available(self.now);
        Some(if alone { available } else { self.less_reserved(available) })
    }
}
