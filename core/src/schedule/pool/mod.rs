//! A target that is a pool: slots and memory are its replicas', each with a limit and books of its own, and each call that goes is placed at one of them, under the same lock.
//!
//! Which replicas are in the choice, and which of those with room a call goes to, is [`Placement`]'s; how much room each of them has is decided here.
//!
//! Invariants: a call is placed at a replica that may take it, which has a slot and memory for it, unless it was forced; what it takes there is given back once, when it is
//! over, also where the replica drains meanwhile; what happens to it is told to [`Placement`] once.

mod faults;
mod kinds;
mod lodging;
mod members;
mod site;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use kinds::Kinds;
pub(super) use lodging::Lodging;
use site::Site;

use super::claim::{Claim, Kind};
use super::limiter::Limiter;
use super::rooms::{ByKind, Most};
use super::settings::Settings;
use super::upstream::Moved;
use super::why::Rule;
use super::{GrantId, Scheduler, Ticket};
use crate::adaptive;
use crate::kv::{self, Forecast};
use crate::placement::{Placement, Places, Wants};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pool {
    placement: Placement,
    /// By place.
    sites: Vec<Option<Site>>,
    /// Those that calls may go to.
    choice: Places,
    kinds: Kinds,
    /// The most calls in flight, at all of them together.
    cap: usize,
    of_each: OfEach,
    /// The calls without an answer, and where they are.
    unanswered: BTreeMap<GrantId, usize>,
    /// Those of them whose replicas went down, until they are told.
    fallen: Vec<GrantId>,
    /// How long there was nobody in the choice, up to the last change, and since when if now.
    closed: Duration,
    closed_since: Option<Instant>,
}

/// What each replica gets.
#[derive(Debug)]
struct OfEach {
    slots: usize,
    adaptive: Option<adaptive::Settings>,
    kv_tokens: Option<u64>,
    kv_headroom: f64,
}

impl Pool {
    /// `None`: these settings are no pool's.
    pub(super) fn new(settings: &Settings, now: Instant) -> Option<Self> {
        let config = settings.pool.as_ref()?;
        Some(Self {
            placement: Placement::new(config, fastrand::u64(..)),
            sites: Vec::new(),
            choice: Places::NONE,
            kinds: Kinds::default(),
            cap: settings.limit,
            of_each: OfEach {
                slots: config.cap,
                adaptive: settings.adaptive.clone(),
                kv_tokens: settings.kv_tokens,
                kv_headroom: settings.kv_headroom,
            },
            unanswered: BTreeMap::new(),
            fallen: Vec::new(),
            closed: Duration::ZERO,
            closed_since: Some(now),
        })
    }

    pub(super) fn set_cap(&mut self, cap: usize) {
        self.cap = cap;
    }

    pub(super) fn slots(&self) -> usize {
        self.in_choice().map(|(_, site)| site.slots()).fold(0, usize::saturating_add).min(self.cap)
    }

    pub(super) fn lack(&self, in_flight: usize) -> Option<Rule> {
        if self.is_closed() {
            return Some(if self.is_down() { Rule::Outage } else { Rule::CoolDown });
        }
        if in_flight >= self.cap {
            return Some(Rule::Slots);
        }
        let mut lack = Rule::Slots;
        for (_, site) in self.in_choice() {
            if site.lack()? == Rule::FirstTokens {
                lack = Rule::FirstTokens;
            }
        }
        Some(lack)
    }

    pub(super) fn limiter_of(&mut self, lodging: &Lodging) -> Option<&mut Limiter> {
        self.site_of(lodging).map(|site| &mut site.limiter)
    }

    /// Lets the limits, and what is known of the replicas, see the time.
    pub(super) fn tick(&mut self, now: Instant) {
        self.sites.iter_mut().flatten().for_each(|site| site.tick(now));
        self.refresh(now);
    }

    /// Sees who is in the choice now.
    fn refresh(&mut self, now: Instant) {
        let choice = self.placement.in_choice(now);
        self.choice = Places::NONE;
        for at in choice.iter() {
            if let Some(site) = self.sites.get_mut(at).and_then(Option::as_mut) {
                site.share = self.placement.share(now, at);
                self.choice.insert(at);
            }
        }
        if self.is_closed() {
            self.closed_since.get_or_insert(now);
        } else if let Some(since) = self.closed_since.take() {
            self.closed += now.saturating_duration_since(since);
        }
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let sites = self.sites.iter().flatten();
        let sites = sites.flat_map(|site| site.limiter.next_wake().into_iter().chain(site.patience_ends()));
        sites.chain(self.placement.next_wake(now)).filter(|at| *at > now).min()
    }

    /// When a replica comes back into the choice, where time alone brings one.
    pub(super) fn soonest(&self, now: Instant) -> Option<Instant> {
        self.placement.next_wake(now)
    }

    pub(super) fn take_moves(&mut self) -> Vec<Moved> {
        let mut moves = Vec::new();
        for site in self.sites.iter_mut().flatten() {
            let moved = site.limiter.take_moves().into_iter();
            moves.extend(moved.map(|moved| (Some(site.placed.url.clone()), moved)));
        }
        moves
    }

    /// The memory's books, all replicas together; `None`: of none of them its size is known.
    pub(super) fn memory(&self) -> Option<kv::View> {
        let views = self.sites.iter().flatten().filter_map(Site::memory);
        views.reduce(|sum, view| kv::View {
            capacity: sum.capacity.saturating_add(view.capacity),
            usable: sum.usable.saturating_add(view.usable),
            calls: sum.calls + view.calls,
            held: sum.held.saturating_add(view.held),
            peak: sum.peak.saturating_add(view.peak),
        })
    }

    /// Whether nobody is in the choice.
    pub(super) fn is_closed(&self) -> bool {
        self.choice.is_empty()
    }

    /// Whether that is for other reasons than that they asked to be left alone.
    pub(super) fn is_down(&self) -> bool {
        !self.sites.iter().flatten().any(|site| site.is_full)
    }

    /// For how long nobody was, in all.
    pub(super) fn closed(&self, now: Instant) -> Duration {
        self.closed + self.closed_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Which replicas may take a call: also those that it was tried at, where others have no room.
    fn eligible(&self, wants: Option<&Wants>, least_input: u64) -> Places {
        match wants.filter(|wants| !wants.avoid.is_empty()) {
            Some(Wants { model, .. }) => {
                let wants = Wants { model: model.clone(), ..Wants::default() };
                self.placement.eligible(Some(&wants), least_input)
            }
            None => self.placement.eligible(wants, least_input),
        }
    }

    /// Those that it was tried at.
    fn tried(&self, wants: Option<&Wants>) -> Places {
        let avoid = wants.map(|wants| wants.avoid.as_slice()).unwrap_or_default();
        avoid.iter().filter_map(|id| self.placement.place_of(*id)).collect()
    }

    /// The kind of such a call.
    pub(super) fn kind(&mut self, ticket: &Ticket) -> Kind {
        let places = self.eligible(ticket.wants.as_deref(), ticket.demand.least_input());
        Kind::new(self.kinds.number(places))
    }

    /// What sets the replicas apart that take a prompt: the longest that each model takes, in order.
    fn lengths(&self) -> Vec<u64> {
        let models = self.sites.iter().flatten().filter_map(|site| site.models.as_ref()).flatten();
        let mut lengths: Vec<_> = models.filter_map(|model| model.longest).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// A call of that kind waits.
    pub(super) fn came(&mut self, kind: Kind) {
        kind.number().into_iter().for_each(|number| self.kinds.came(number));
    }

    /// It does not any more.
    pub(super) fn went(&mut self, kind: Kind) {
        kind.number().into_iter().for_each(|number| self.kinds.left(number));
    }

    fn places_of(&self, kind: Kind) -> Places {
        kind.number().and_then(|number| self.kinds.get(number)).unwrap_or_default()
    }

    /// Those in the choice that a call of that kind may go to.
    pub(super) fn choice_of(&self, kind: Kind) -> Places {
        self.places_of(kind).and(self.choice)
    }

    /// Whether one of those has a slot, beside so many in flight.
    pub(super) fn has_slot_for(&self, kind: Kind, in_flight: usize) -> bool {
        !self.choice_of(kind).and(self.open(in_flight)).is_empty()
    }

    /// Returns those in the choice where a call of that claim would go if a slot came free, beside
    /// so many in flight. That is not so where more calls are in flight than there are slots, nor
    /// where calls are turned away.
    pub(super) fn would_fit_at(&self, claim: &Claim, in_flight: usize) -> Places {
        let fits =
            |site: &Site| site.in_flight <= site.slots() && !site.is_full && claim.need.kv <= site.longest;
        let among = self.choice_of(claim.kind).iter().filter(|_| in_flight <= self.cap);
        among.filter(|at| self.site(*at).is_some_and(fits)).collect()
    }

    /// Whether that call has no answer yet, at one of those.
    pub(super) fn is_at(&self, id: GrantId, places: Places) -> bool {
        self.unanswered.get(&id).is_some_and(|at| places.contains(*at))
    }

    /// Looks at what memory there is: it comes free as calls end, and as they turn out.
    pub(super) fn survey(&mut self) {
        self.sites.iter_mut().flatten().for_each(Site::survey);
    }

    /// What there is for calls of each kind, beside so many in flight; at `held`, memory for none but one.
    pub(super) fn by_kind(&self, in_flight: usize, held: Option<usize>) -> ByKind {
        let open = self.open(in_flight);
        self.longest_of_each(open, held)
    }

    /// The same, if each replica in the choice had a slot.
    pub(super) fn by_kind_but_slots(&self, held: Option<usize>) -> ByKind {
        self.longest_of_each(self.choice, held)
    }

    fn longest_of_each(&self, open: Places, held: Option<usize>) -> ByKind {
        let open = open.and(self.choice);
        let longest = |at| Some((at, if held == Some(at) { 0 } else { self.site(at)?.longest }));
        let most = |places: Places| Most::of(places.and(open).iter().filter_map(longest));
        ByKind::new(open, held, self.kinds.iter().map(|places| most(places?)))
    }

    /// Returns whether one of these replicas has memory for a call, which may take it; not what is held there, or kept.
    pub(super) fn has_memory(
        &self,
        claim: &Claim,
        ticket: &Ticket,
        at: &ByKind,
        kept: Option<usize>,
    ) -> bool {
        let (taken, forecast) = ([at.held, kept], self.forecast(ticket));
        let mut among = self.places_of(claim.kind).and(at.open).iter();
        among.any(|at| {
            let free = claim.need.kv == 0 || !taken.contains(&Some(at));
            free && self.site(at).is_some_and(|site| site.fits(ticket, &forecast))
        })
    }

    /// Returns the forecast of a call as of now, once for all replicas; empty where no memory's size is known.
    fn forecast(&self, ticket: &Ticket) -> Forecast {
        let sized = self.sites.iter().flatten().any(|site| site.most().is_some());
        if sized { ticket.forecast.clone().now() } else { Forecast::default() }
    }

    /// The replica whose memory is kept for a call that lacks some: the one that has come nearest to having it. `None`: one has it, and lacks but a slot; or none
    /// will ever have it.
    pub(super) fn reserve(&self, claim: &Claim, ticket: &Ticket) -> Option<usize> {
        let forecast = self.forecast(ticket);
        let could = |site: &Site| site.most().is_none_or(|most| u64::from(claim.need.kv) <= most);
        let among = self.choice_of(claim.kind).iter();
        let sites = among
            .filter_map(|at| Some((at, self.site(at).filter(|site| could(site))?.slack(ticket, &forecast))));
        let nearest =
            sites.max_by(|(at, slack), (other, of_other)| slack.total_cmp(of_other).then(other.cmp(at)))?;
        Some(nearest).filter(|(_, slack)| *slack < 0.0).map(|(at, _)| at)
    }

    /// The most that a call may hold, where it has more input than that for certain.
    pub(super) fn oversize(&self, claim: &Claim, least_input: u64) -> Option<u64> {
        let sites = self.places_of(claim.kind).iter().filter_map(|at| self.site(at));
        let most = sites.map(|site| site.most().unwrap_or(u64::MAX)).max()?;
        (least_input > most).then_some(most)
    }

    /// Those in the choice with a slot.
    fn open(&self, in_flight: usize) -> Places {
        if in_flight >= self.cap {
            return Places::NONE;
        }
        self.in_choice().filter(|(_, site)| site.lack().is_none()).map(|(at, _)| at).collect()
    }

    fn in_choice(&self) -> impl Iterator<Item = (usize, &Site)> {
        self.choice.iter().filter_map(|at| Some((at, self.site(at)?)))
    }

    fn site(&self, at: usize) -> Option<&Site> {
        self.sites.get(at)?.as_ref()
    }

    fn site_mut(&mut self, at: usize) -> Option<&mut Site> {
        self.sites.get_mut(at)?.as_mut()
    }

    fn site_of(&mut self, lodging: &Lodging) -> Option<&mut Site> {
        let site = self.site_mut(lodging.parcel.at)?;
        (site.placed.id == lodging.parcel.placed.id).then_some(site)
    }
}

impl<W> Scheduler<W> {
    /// Computes anew which replicas may take each call that waits.
    fn claim_anew(&mut self) {
        let Some(pool) = self.upstream.pool_mut() else { return };
        let mut moved = Vec::new();
        let lengths = pool.lengths();
        // Few models and lengths, however many wait. A number that is remembered here stays: whoever it was found for waits of it.
        let mut known = HashMap::new();
        for (call, waiter) in self.waiters.iter_mut() {
            let model = waiter.ticket.wants.as_ref().and_then(|wants| wants.model.clone());
            let input = waiter.ticket.demand.least_input();
            let length = lengths.partition_point(|longest| *longest <= input);
            let kind = *known.entry((model, length)).or_insert_with(|| pool.kind(&waiter.ticket));
            if kind != waiter.claim.kind {
                // The new one first: a number that nobody waits of may be given to another.
                pool.came(kind);
                pool.went(std::mem::replace(&mut waiter.claim.kind, kind));
                moved.push((waiter.tenant, waiter.ticket.lane, (waiter.order, call), waiter.claim));
            }
        }
        for (tenant, lane, place, claim) in &moved {
            let Some(tenant) = self.tenants.get_mut(*tenant) else { continue };
            let line = &mut tenant.lines[*lane as usize];
            line.calls.set(place, *claim);
            if let Some(standing) = line.standing.as_mut().filter(|standing| standing.head.call == place.1) {
                standing.head.claim = *claim;
            }
        }
        moved.dedup_by_key(|(tenant, lane, ..)| (*tenant, *lane));
        moved.into_iter().for_each(|(tenant, lane, ..)| self.place(tenant, lane));
    }
}
