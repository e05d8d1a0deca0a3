//! Who goes next.
//!
//! 1. Tenants, then lanes, that hold fewer slots than their floor, the least served first.
//! 2. The *front*: of the lane whose turn it is ([`super::lanes`]), of the line that fair queueing puts first, the first call.
//! 3. Where the front does not fit: the first that does, inside its line, its lane, the other lanes. Unless the front is aged, that is, has
//!    waited for `aging`: then what it lacks is *held*, and nobody who would take of it goes, floor or not.
//!
//! Whether the engine's memory has room for a call is only known when the call is looked at. So that a decision takes no longer however
//! many wait, it ends after [`LOOKS`](super::rooms) of them that have no room: behind half as many, only those with a shorter prompt
//! than each of those are looked at. Floors have looks of their own, so that the front is always looked at.
//!
//! Of a line whose head is aged only the head goes. At a pool the others go where they take nothing that it lacks: where none of the replicas that may take it has a slot,
//! anywhere; where all that it lacks is memory, anywhere but at the one replica that is kept for it. A tenant without tokens of its own holds nobody up: its line stands
//! aside until it has some.
//!
//! If what goes is a probe of a target that is down, the calls that have failed here are left out, as if they did not wait, unless nobody else can go.

use std::sync::Arc;
use std::time::Instant;

use super::claim::{Claim, Held};
use super::floors::Holder;
use super::ids::{TenantId, WaiterId};
use super::lanes::{self, Slots, Turn};
use super::rooms::Rooms;
use super::{Scheduler, Ticket};
use crate::context::Lane;

/// What is kept for the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) call: WaiterId,
    pub(super) held: Held,
}

/// The call that goes.
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) next: Next,
    pub(super) right: Right,
}

/// By what right a call goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Right {
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
    Dry(Instant),
    /// Nothing that fits; and the least that one that may go takes.
    Nothing(Claim),
}

/// A line's head.
#[derive(Clone, Copy)]
pub(super) struct LineHead {
    pub(super) call: WaiterId,
    pub(super) claim: Claim,
    pub(super) aged: bool,
}

impl<W> Scheduler<W> {
    /// The call that goes now, where one may. It stays where it is.
    pub(super) fn pick(&mut self, now: Instant) -> Option<Pick> {
        self.hold = None;
        if !self.has_slot() {
            return None;
        }
        self.unpark(now);
        if self.lanes.is_empty() || self.cooldown.ready(now, self.upstream.slots(), false).is_err() {
            return None;
        }
        let all = self.rooms(now);
        let mut pick = None;
        if self.cooldown.is_probing() {
            pick = self.pick_within(now, Rooms { unfailed_only: true, ..all.clone() });
        }
        let pick = pick.or_else(|| self.pick_within(now, all.clone()));
        if pick.is_none() {
            self.note_lack(now, &all);
        }
        pick
    }

    /// The same, where there is so much to take.
    fn pick_within(&mut self, now: Instant, rooms: Rooms) -> Option<Pick> {
        self.hold = self.hold_for_front(now, &rooms);
        let mut rooms = self.less_held(rooms);
        // What was looked at for a floor does not count against the front.
        self.by_floor(now, &mut rooms.clone()).or_else(|| self.by_turn(now, &mut rooms))
    }

    fn by_turn(&mut self, now: Instant, rooms: &mut Rooms) -> Option<Pick> {
        self.turns(now).find_map(|turn| {
            let next = self.first_in(now, turn.lane, rooms)?;
            Some(Pick { next, right: Right::Turn(turn) })
        })
    }

    pub(super) fn turns(&mut self, now: Instant) -> impl Iterator<Item = Turn> + use<W> {
        let slots = self.slots();
        self.lanes.order(now, self.settings.aging, &slots)
    }

    pub(super) fn slots(&self) -> Slots {
        Slots { in_force: self.upstream.slots(), in_flight: self.in_flight, by_lane: self.by_lane }
    }

    /// The tenant in debt whose line goes before the lane's first.
    pub(super) fn debtor(&mut self, now: Instant, lane: Lane) -> Option<TenantId> {
        let id = self.lanes.debtor(now, self.settings.aging, lane)?;
        let account = &self.tenants.get(id)?.lines[lane as usize].account;
        self.lanes.time(lane).is_owed(account).then_some(id)
    }

    /// The first call of a lane that fits.
    pub(super) fn first_in(&mut self, now: Instant, lane: Lane, rooms: &mut Rooms) -> Option<Next> {
        if let Some(tenant) = self.debtor(now, lane)
            && let Some(Offer::Goes(next)) = self.offer(now, tenant, lane, rooms)
        {
            return Some(next);
        }
        let mut after: Option<lanes::Spot> = None;
        while let Some(spot) = self.lanes.next_fit(lane, after.as_ref(), rooms) {
            match self.offer(now, spot.tenant, lane, rooms) {
                Some(Offer::Goes(next)) => return Some(next),
                Some(Offer::Dry(until)) => self.park(now, spot.tenant, lane, until),
                Some(Offer::Nothing(least)) => self.lanes.set(lane, &spot, least),
                None => {}
            }
            after = Some(spot);
        }
        None
    }

    /// The first call of a tenant that fits, of whichever of its lines would go first.
    pub(super) fn first_of(&mut self, now: Instant, tenant: TenantId, rooms: &mut Rooms) -> Option<Next> {
        self.turns(now).find_map(|turn| match self.offer(now, tenant, turn.lane, rooms) {
            Some(Offer::Goes(next)) => Some(next),
            _ => None,
        })
    }

    /// `None`: the line does not stand.
    fn offer(&self, now: Instant, tenant: TenantId, lane: Lane, rooms: &mut Rooms) -> Option<Offer> {
        let head = self.head_within(now, tenant, lane, rooms)?;
        let tenant = self.tenants.get(tenant)?;
        let line = &tenant.lines[lane as usize];
        let own = tenant.own_room(now);
        let behind = if head.aged { self.behind(&head, rooms, own) } else { Some(rooms.clone()) };
        let all = line.calls.least()?;
        // While the target is probed, calls pass a head that has failed.
        let has_failed = line.standing?.head.claim.has_failed;
        let least = if behind.is_some() || has_failed { all } else { head.claim };
        if least.own > own {
            return tenant.own.as_ref().map(|bucket| Offer::Dry(bucket.ready_at(now, least.own)));
        }
        if head.claim.fits(rooms, own) {
            if self.fits(&head.claim, &self.waiters.get(head.call)?.ticket, rooms) {
                return Some(Offer::Goes(Next { call: head.call, kept: None }));
            }
            rooms.looks.failed(head.claim.need.kv);
        }
        if let Some(mut behind) = behind {
            behind.looks = rooms.looks;
            let mut after = None;
            while let Some(key @ (_, call)) = line.calls.next_fit(after.as_ref(), &behind, own) {
                after = Some(key);
                let Some(waiter) = self.waiters.get(call).filter(|_| call != head.call) else { continue };
                if self.fits(&waiter.claim, &waiter.ticket, &behind) {
                    return Some(Offer::Goes(Next { call, kept: behind.kept }));
                }
                behind.looks.failed(waiter.claim.need.kv);
            }
            rooms.looks = behind.looks;
        }
        // At a pool what the head lacks changes, and with it who may pass.
        Some(Offer::Nothing(if self.upstream.pool().is_some() { all } else { least }))
    }

    /// What is left for those behind an aged head. `None`: nothing; only the head goes.
    pub(super) fn behind(&self, head: &LineHead, rooms: &Rooms, own: u32) -> Option<Rooms> {
        let Some(room) = rooms.of(&head.claim) else { return Some(rooms.clone()) };
        let pool = self.upstream.pool()?;
        if head.claim.own > own || !room.open || Held::lacking(&head.claim.need, &room, true).of_all() {
            return None;
        }
        let ticket = &self.waiters.get(head.call)?.ticket;
        Some(Rooms { kept: pool.reserve(&head.claim, ticket), ..rooms.clone() })
    }

    /// Returns whether a call fits into what there is. Exact.
    pub(super) fn fits(&self, claim: &Claim, ticket: &Ticket, rooms: &Rooms) -> bool {
        rooms.fit(claim) && self.has_memory(claim, ticket, rooms)
    }

    /// Returns whether the engine, or a replica that may take the call, has memory for it.
    pub(super) fn has_memory(&self, claim: &Claim, ticket: &Ticket, rooms: &Rooms) -> bool {
        match self.upstream.pool().zip(rooms.replicas.as_deref()) {
            Some((pool, replicas)) => pool.has_memory(claim, ticket, replicas, rooms.kept),
            None => self.stock.has_memory(ticket),
        }
    }

    /// `None`: the line does not stand.
    pub(super) fn line_head(&self, now: Instant, tenant: TenantId, lane: Lane) -> Option<LineHead> {
        let head = self.tenants.get(tenant)?.lines[lane as usize].standing?.head;
        Some(LineHead { call: head.call, claim: head.claim, aged: self.is_aged(now, head.age) })
    }

    /// Returns the first call of a line that the rooms do not exclude, or its head if they exclude
    /// all. `None`: the line does not stand.
    pub(super) fn head_within(
        &self,
        now: Instant,
        tenant: TenantId,
        lane: Lane,
        rooms: &Rooms,
    ) -> Option<LineHead> {
        let head = self.line_head(now, tenant, lane)?;
        if !(rooms.unfailed_only && head.claim.has_failed) {
            return Some(head);
        }
        let unfailed = Rooms { unfailed_only: true, ..Rooms::UNBOUNDED };
        let calls = &self.tenants.get(tenant)?.lines[lane as usize].calls;
        let Some((_, call)) = calls.next_fit(None, &unfailed, u32::MAX) else { return Some(head) };
        let waiter = self.waiters.get(call)?;
        Some(LineHead { call, claim: waiter.claim, aged: self.is_aged(now, waiter.ticket.queued_at) })
    }

    /// Returns `true` if a call queued at that time has waited for the ageing time.
    fn is_aged(&self, now: Instant, queued_at: Instant) -> bool {
        now.saturating_duration_since(queued_at) >= self.settings.aging
    }

    /// The lane and the tenant that are to go next, if the head of the line fits. Lines without tokens of their own stand aside.
    pub(super) fn front(&mut self, now: Instant) -> Option<(Lane, TenantId)> {
        loop {
            let lane = self.turns(now).next()?.lane;
            let tenant = self.debtor(now, lane).or_else(|| self.lanes.first(lane))?;
            match self.dry_until(now, tenant, lane) {
                Some(until) => self.park(now, tenant, lane, until),
                None => return Some((lane, tenant)),
            }
        }
    }

    /// When a line's tenant has tokens of its own again for a call of it that may go; `None`: it has.
    fn dry_until(&self, now: Instant, tenant: TenantId, lane: Lane) -> Option<Instant> {
        let head = self.line_head(now, tenant, lane)?;
        let tenant = self.tenants.get(tenant)?;
        let own = tenant.own.as_ref()?;
        let alone = head.aged && self.upstream.pool().is_none();
        let least = if alone { head.claim.own } else { tenant.lines[lane as usize].calls.least()?.own };
        (least > own.room(now)).then(|| own.ready_at(now, least))
    }

    pub(super) fn hold_for_front(&mut self, now: Instant, rooms: &Rooms) -> Option<Hold> {
        if !self.is_sized() {
            return None;
        }
        let (lane, tenant) = self.front(now)?;
        let head = self.line_head(now, tenant, lane).filter(|head| head.aged)?;
        // Where only a slot is lacking there is nothing to hold: the first slot that comes free is its own, or goes to whom goes before it.
        let room = rooms.of(&head.claim)?;
        let ticket = &self.waiters.get(head.call)?.ticket;
        let memory = self.has_memory(&head.claim, ticket, rooms);
        if memory && rooms.fit(&head.claim) {
            return None;
        }
        // What will not be there before the call has gone would be kept for nobody.
        let ready = self.stock.ready_at(now, &head.claim.need, &room).filter(|_| memory);
        let in_time = ready.is_none_or(|at| at <= ticket.deadline);
        let held = Held::lacking(&head.claim.need, &room, memory);
        let held = match self.upstream.pool() {
            Some(pool) => held.at(pool.reserve(&head.claim, ticket)),
            None => held,
        };
        (in_time && (held != Held::default() || !room.open)).then_some(Hold { call: head.call, held })
    }

    /// What there is to take now.
    pub(super) fn rooms(&mut self, now: Instant) -> Rooms {
        let replicas = self.upstream.pool_mut().map(|pool| {
            pool.survey();
            Arc::new(pool.by_kind(self.in_flight, None))
        });
        let unfailed_only = self.cooldown.ready(now, self.upstream.slots(), true).is_err();
        Rooms { unfailed_only, ..Rooms::new(self.stock.room(now), replicas) }
    }

    /// What is left beside what is held.
    pub(super) fn less_held(&self, mut rooms: Rooms) -> Rooms {
        let Some(Hold { held, .. }) = &self.hold else { return rooms };
        rooms.shared = held.leave(rooms.shared);
        if let (Some(pool), Some(at)) = (self.upstream.pool(), held.at) {
            rooms.replicas = Some(Arc::new(pool.by_kind(self.in_flight, Some(at))));
        }
        rooms
    }

    /// Lines whose tenants have tokens of their own again.
    pub(super) fn unpark(&mut self, now: Instant) {
        while let Some((lane, id)) = self.lanes.due(now) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.dry.set(now, false);
            }
            self.place(id, lane);
        }
    }

    fn park(&mut self, now: Instant, id: TenantId, lane: Lane, until: Instant) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.dry.set(now, true);
            self.lanes.park(lane, id, &mut tenant.lines[lane as usize], until);
        }
    }
}
