//! What a target has besides slots: the provider's rate budgets, and the engine's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Ticket;
use super::why::Rule;
use crate::budget::{Charge, Need, RateBudgets, Room};
use crate::estimate::Demand;
use crate::kv::{self, Kv, Place, Prefix, Progress};
use crate::wire::Usage;
use crate::wire::rate::RateHeaders;

/// What a scheduler decides over besides slots. The budgets may be those of several targets; their lock is taken inside the scheduler's.
#[derive(Debug)]
pub struct Resources {
    /// The provider's rates.
    pub budgets: Arc<Mutex<RateBudgets>>,
    /// The engine's memory, where its size is known.
    pub kv: Option<Kv>,
}

/// The same, where there may be nothing of it.
#[derive(Debug, Default)]
pub(super) struct Stock {
    budgets: Option<Arc<Mutex<RateBudgets>>>,
    /// Whether the budgets bound anything now: as good as asking them, without their lock.
    bounds: Arc<AtomicBool>,
    kv: Option<Kv>,
}

/// What an attempt in flight has taken. Boxed where it is carried: most of a slot's life it is only carried.
#[derive(Debug)]
pub(super) struct Taken {
    charge: Option<Charge>,
    memory: Option<(Place, Progress)>,
}

impl Taken {
    pub(super) fn progress(&self) -> Option<&Progress> {
        self.memory.as_ref().map(|(_, progress)| progress)
    }
}

impl From<Resources> for Stock {
    fn from(resources: Resources) -> Self {
        let bounds = resources.budgets.lock().has_limits();
        Self { budgets: Some(resources.budgets), bounds, kv: resources.kv }
    }
}

impl Stock {
    /// The memory's books are kept elsewhere.
    pub(super) fn without_memory(&mut self) {
        self.kv = None;
    }

    /// Whether there is nothing, now or ever, that a call could lack.
    pub(super) fn is_none(&self) -> bool {
        self.budgets.is_none() && self.kv.is_none()
    }

    /// Whether there is anything now that a call could lack: what has no budget may get one from its provider's headers.
    pub(super) fn is_bounded(&self) -> bool {
        self.kv.is_some() || self.has_rates()
    }

    /// Returns whether a budget bounds anything now.
    pub(super) fn has_rates(&self) -> bool {
        self.bounding().is_some()
    }

    /// The budgets, where they bound anything.
    fn bounding(&self) -> Option<&Mutex<RateBudgets>> {
        self.budgets.as_deref().filter(|_| self.bounds.load(Ordering::Acquire))
    }

    pub(super) fn need(&self, demand: &Demand) -> Need {
        let mut need = self.budgets.as_ref().map_or(Need::ZERO, |budgets| budgets.lock().need(demand));
        if let Some(kv) = &self.kv {
            need.kv = kv.need(demand);
        }
        need
    }

    pub(super) fn room(&mut self, now: Instant) -> Room {
        let mut room = self.bounding().map_or(Room::UNBOUNDED, |budgets| budgets.lock().available(now));
        if let Some(kv) = &mut self.kv {
            room.most.kv = kv.room();
        }
        room
    }

    /// Which rule a call could never satisfy, and the most that it may take.
    pub(super) fn oversize(&self, demand: &Demand) -> Option<(Rule, u64)> {
        // Of the output nothing is certain, and an engine cuts what is allowed too much.
        if let Some(kv) = self.kv.as_ref().filter(|kv| demand.least_input() > kv.most()) {
            return Some((Rule::Kv, kv.most()));
        }
        let (kind, most) = self.bounding()?.lock().oversize(demand)?;
        Some((kind.into(), most))
    }

    /// Whether the budgets have no room now for another call of what that one took.
    pub(super) fn is_spent(&self, now: Instant, taken: &Taken) -> bool {
        let (Some(budgets), Some(charge)) = (self.bounding(), &taken.charge) else { return false };
        budgets.lock().ready_at(now, &charge.need).is_some()
    }

    /// Returns whether the engine's memory has room for the call, by the last [`Stock::room`].
    pub(super) fn has_memory(&self, ticket: &Ticket) -> bool {
        self.kv.as_ref().is_none_or(|kv| kv.fits(&ticket.demand, &ticket.forecast, &Prefix::default()))
    }

    /// Which budget a call of that need lacks, and when the budget will have it, if nothing else goes.
    pub(super) fn lacks(&self, now: Instant, need: &Need) -> Option<(Rule, Option<Instant>)> {
        let (kind, at) = self.bounding()?.lock().ready_at(now, need)?;
        Some((kind.into(), Some(at)))
    }

    /// When the budgets have room for a call of that need, if nothing else goes; `None`: time alone will not do, for the memory has not.
    pub(super) fn ready_at(&self, now: Instant, need: &Need, room: &Room) -> Option<Instant> {
        if need.kv > room.most.kv {
            return None;
        }
        let ready = self.bounding().and_then(|budgets| budgets.lock().ready_at(now, need));
        Some(ready.map_or(now, |(_, at)| at))
    }

    /// How long so many calls of that need in all take to get through the budgets.
    pub(super) fn time_for(&self, calls: usize, need: &Need) -> Duration {
        self.bounding().map_or(Duration::ZERO, |budgets| budgets.lock().time_for(calls, need))
    }

    /// `None`: there is nothing to take of.
    pub(super) fn take(&mut self, now: Instant, ticket: &Ticket) -> Option<Box<Taken>> {
        let demand = &ticket.demand;
        let charge = self.budgets.as_ref().map(|budgets| budgets.lock().charge(now, demand));
        let memory = self.kv.as_mut().map(|kv| {
            let progress = Progress::default();
            let forecast = ticket.forecast.clone();
            (kv.admit_expecting(demand, forecast, Prefix::default(), progress.clone()), progress)
        });
        (!self.is_none()).then(|| Box::new(Taken { charge, memory }))
    }

    /// The attempt has ended. What was never sent goes back whole; what was keeps its charge, as far as it was settled.
    pub(super) fn give_back(&mut self, now: Instant, taken: Taken, sent: bool) {
        if let (Some(kv), Some((place, _))) = (&mut self.kv, taken.memory) {
            kv.release(place);
        }
        if let (Some(budgets), Some(charge)) = (&self.budgets, taken.charge)
            && !sent
        {
            budgets.lock().refund(now, charge);
        }
    }

    /// The memory's books, where there are any.
    pub(super) fn memory(&self) -> Option<kv::View> {
        self.kv.as_ref().map(Kv::view)
    }

    pub(super) fn settle(&self, now: Instant, taken: &mut Taken, usage: &Usage) {
        if let (Some(budgets), Some(charge)) = (&self.budgets, &mut taken.charge) {
            budgets.lock().settle(now, charge, usage);
        }
    }

    pub(super) fn heard(
        &self,
        now: Instant,
        taken: &Taken,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        if let (Some(budgets), Some(charge)) = (&self.budgets, &taken.charge) {
            budgets.lock().on_response(now, charge, sent_at, headers, limited);
        }
    }
}
