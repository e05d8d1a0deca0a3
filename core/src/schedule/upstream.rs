//! What stands behind a target: one upstream with a limit of its own, or a pool of replicas of which each has one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::limiter::Limiter;
use super::pool::{Lodging, Pool};
use super::reason::Reason;
use super::settings::Settings;
use super::why::Rule;
use super::{Scheduler, Ticket};
use crate::adaptive::{AdaptiveView, Decision};
use crate::cooldown::State;
use crate::kv;

/// A move of a limit, and of a pool the URL of the replica whose limit it is.
pub type Moved = (Option<Arc<str>>, Decision);

#[derive(Debug)]
pub(super) enum Upstream {
    One(Limiter),
    Pool(Box<Pool>),
}

impl Upstream {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        match Pool::new(settings, now) {
            Some(pool) => Self::Pool(Box::new(pool)),
            None => Self::One(Limiter::new(settings.limit, settings.adaptive.as_ref(), now)),
        }
    }

    pub(super) fn pool(&self) -> Option<&Pool> {
        match self {
            Self::One(_) => None,
            Self::Pool(pool) => Some(pool),
        }
    }

    pub(super) fn pool_mut(&mut self) -> Option<&mut Pool> {
        match self {
            Self::One(_) => None,
            Self::Pool(pool) => Some(pool),
        }
    }

    /// Slots in force: of a pool, those of the replicas in the choice, as far as the target's own cap goes.
    pub(super) fn slots(&self) -> usize {
        match self {
            Self::One(limiter) => limiter.slots(),
            Self::Pool(pool) => pool.slots(),
        }
    }

    /// What leaves no room for any other call, beside so many in flight.
    pub(super) fn lack(&self, in_flight: usize) -> Option<Rule> {
        match self {
            Self::One(limiter) => limiter.lack(in_flight),
            Self::Pool(pool) => pool.lack(in_flight),
        }
    }

    /// The limit that a call is told to. `None`: that of a replica which has left.
    pub(super) fn limiter_of(&mut self, lodging: Option<&Lodging>) -> Option<&mut Limiter> {
        match self {
            Self::One(limiter) => Some(limiter),
            Self::Pool(pool) => pool.limiter_of(lodging?),
        }
    }

    /// From now on so many slots, whatever was found: of a pool, of all replicas together at most.
    pub(super) fn set_limit(&mut self, limit: usize) {
        match self {
            Self::One(limiter) => *limiter = Limiter::fixed(limit),
            Self::Pool(pool) => pool.set_cap(limit),
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        match self {
            Self::One(limiter) => limiter.tick(now),
            Self::Pool(pool) => pool.tick(now),
        }
    }

    /// When time alone may make more room.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::One(limiter) => limiter.next_wake(),
            Self::Pool(pool) => pool.next_wake(now),
        }
    }

    pub(super) fn take_moves(&mut self) -> Vec<Moved> {
        match self {
            Self::One(limiter) => limiter.take_moves().into_iter().map(|moved| (None, moved)).collect(),
            Self::Pool(pool) => pool.take_moves(),
        }
    }

    /// Of one upstream; each replica has its own, see [`Scheduler::replicas`].
    pub(super) fn adaptive(&self, now: Instant, in_flight: usize) -> Option<AdaptiveView> {
        match self {
            Self::One(limiter) => limiter.view(now, in_flight),
            Self::Pool(_) => None,
        }
    }

    /// The memory's books, of all replicas together; `None`: they are not this one's.
    pub(super) fn memory(&self) -> Option<kv::View> {
        self.pool()?.memory()
    }
}

impl<W> Scheduler<W> {
    /// Whether nobody may be sent anything: wait budgets stand still meanwhile.
    pub(super) fn is_closed(&self) -> bool {
        self.cooldown.is_closed() || self.upstream.pool().is_some_and(Pool::is_closed)
    }

    /// For how long that has been so, in all.
    pub(super) fn closed(&self, now: Instant) -> Duration {
        match self.upstream.pool() {
            Some(pool) => pool.closed(now),
            None => self.cooldown.closed(now),
        }
    }

    /// Until when it is so, as far as time alone decides that.
    pub(super) fn closed_until(&self, now: Instant) -> Option<Instant> {
        match self.upstream.pool() {
            Some(pool) => pool.soonest(now).filter(|_| pool.is_closed()),
            None => self.cooldown.until(),
        }
    }

    /// Which rule says so.
    pub(super) fn closed_rule(&self) -> Rule {
        let down = self.upstream.pool().map_or_else(|| self.cooldown.is_down(), Pool::is_down);
        if down { Rule::Outage } else { Rule::CoolDown }
    }

    /// The same, as a call is told.
    pub(super) fn closed_reason(&self) -> Reason {
        if self.closed_rule() == Rule::Outage { Reason::Outage } else { Reason::CoolDown }
    }

    /// Its name, for somebody who looks.
    pub(super) fn shown(&self, now: Instant) -> State {
        match self.upstream.pool() {
            Some(pool) if pool.is_closed() => State::Cooling,
            Some(_) => State::Open,
            None => self.cooldown.shown(now),
        }
    }

    /// Which rule a call could never satisfy, and the most that it may take.
    pub(super) fn oversize(&self, ticket: &Ticket, claim: &super::claim::Claim) -> Option<(Rule, u64)> {
        let most = self.upstream.pool().and_then(|pool| pool.oversize(claim, ticket.demand.least_input()));
        most.map(|most| (Rule::Kv, most)).or_else(|| self.stock.oversize(&ticket.demand))
    }
}
