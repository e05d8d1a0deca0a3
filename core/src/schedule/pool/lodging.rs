//! A call at a replica: what it takes there, and how that comes back.

use std::time::Instant;

use super::Pool;
use crate::kv::Progress;
use crate::placement::{Parcel, Placed, Places, Work};
use crate::schedule::limiter::Tracked;
use crate::schedule::upstream::{Admitted, MemoryUse};
use crate::schedule::{Grant, GrantId, Ticket};

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::schedule) struct Lodging {
    pub(super) parcel: Parcel,
    /// Those that it could be tried at next, at once; none where it was tried here before.
    pub(super) others: Places,
    space: MemoryUse,
    /// Whether it asks, for all others, whether its replica has room again.
    knocks: bool,
    /// Whether its first token is still to come.
    pub(in crate::schedule) awaits: bool,
}

impl Lodging {
    pub(in crate::schedule) fn placed(&self) -> &Placed {
        &self.parcel.placed
    }

    pub(in crate::schedule) fn progress(&self) -> &Progress {
        &self.space.progress
    }
}

impl Pool {
    /// Places a call that goes, by the last survey; not where memory is reserved for others. A forced one goes to whom may take it, room or not.
    /// `None`: there is no replica.
    pub(super) fn lodge(
        &mut self,
        now: Instant,
        admitted: &Admitted<'_>,
    ) -> Option<(Lodging, Option<Tracked>)> {
        let Admitted { id, ticket, kind, in_flight, reserved } = *admitted;
        // Of those in flight before it.
        let in_flight = in_flight.saturating_sub(1);
        let wants = ticket.wants.as_deref();
        let (may, tried) = (self.places_of(kind), self.tried(wants));
        let open = self.fitting(ticket, may, tried, in_flight, reserved);
        let work = Work { input: ticket.demand.input, output: ticket.demand.output };
        // What is not among those that were asked for would be in nobody's books.
        let chosen = self.placement.choose(now, wants, work, open).filter(|at| open.contains(*at));
        let at = chosen.or_else(|| open.iter().next())?;
        let parcel = self.placement.sent(now, at, wants, work)?;
        let site = self.sites.get_mut(at)?.as_mut()?;
        let knocks = site.sent(now);
        let tracked = site.limiter.sent(now, ticket);
        let space = site.admit(ticket);
        self.unanswered.insert(id, at);
        self.refresh(now);
        let others = if tried.contains(at) { Places::NONE } else { may.less(tried).less(Places::one(at)) };
        Some((Lodging { parcel, others, space, knocks, awaits: ticket.streams }, tracked))
    }

    /// The replicas that have room for it, of these those that it was not tried at; where there is none, those that it is least wrong to send it to.
    fn fitting(
        &self,
        ticket: &Ticket,
        may: Places,
        tried: Places,
        in_flight: usize,
        reserved: Places,
    ) -> Places {
        let need = u32::try_from(ticket.demand.input).unwrap_or(u32::MAX);
        let among = may.and(self.choice);
        let forecast = self.forecast(ticket);
        let fits = |at: &usize| self.site(*at).is_some_and(|site| site.fits(ticket, &forecast));
        let with_slot = among.and(self.open(in_flight));
        let open: Places = with_slot.iter().filter(fits).collect();
        let free = if need > 0 { open.less(reserved) } else { open };
        let present = || self.sites.iter().enumerate().filter_map(|(at, site)| site.as_ref().map(|_| at));
        let new = |places: Places| places.less(tried);
        // A forecast may have grown since the call was picked: it has a slot all the same.
        let fitting = [new(free), free, new(open), open, new(with_slot), with_slot];
        let others = [new(among), among, new(may), may];
        fitting
            .into_iter()
            .chain(others)
            .find(|places| !places.is_empty())
            .unwrap_or_else(|| present().collect())
    }

    /// It has ended: what it took comes back.
    pub(super) fn leave(&mut self, now: Instant, id: GrantId, lodging: Lodging) {
        self.settled(id);
        if let Some(site) = self.site_of(&lodging) {
            site.left(lodging.knocks);
            site.release(lodging.space);
        }
        if let Some(left) = self.placement.ended(lodging.parcel)
            && let Some(site) = self.sites.get_mut(left)
        {
            *site = None;
        }
        self.refresh(now);
    }
}

impl Grant {
    /// The replica that it is placed at, where its target is a pool.
    pub fn placed(&self) -> Option<&Placed> {
        self.slot.lodging.as_ref().map(|lodging| lodging.placed())
    }

    /// The replica's place in the pool's table.
    pub fn place(&self) -> Option<usize> {
        self.slot.lodging.as_ref().map(|lodging| lodging.parcel.at)
    }
}
