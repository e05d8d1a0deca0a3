//! Floors: slots that are a tenant's or a lane's own whenever it wants them. Idle ones are lent, and given back as calls end.
//!
//! A floor of less than a slot is rounded up to one. Where the limit is that small such floors could add up to more than there is, and shut
//! everybody else out: so they go first only every other time.

use std::time::Instant;

use super::Scheduler;
use super::ids::TenantId;
use super::order::{Next, Pick, Right};
use super::rooms::Rooms;
use super::tenants::Tenants;
use crate::config::LaneConfig;
use crate::context::Lane;

/// Whose a floor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Tenant(TenantId),
    Lane(Lane),
}

#[derive(Debug)]
struct Floor {
    holder: Holder,
    share: f64,
    /// The grant that it went first with last.
    last: u64,
}

/// Everybody who has one, tenants first.
#[derive(Debug)]
pub(super) struct Floors {
    floors: Vec<Floor>,
    /// Who went first last, where the last call went by a floor.
    last: Option<Holder>,
}

/// Who waits and holds less than its floor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hungry {
    pub(super) holder: Holder,
    /// So many slots less.
    pub(super) missing: usize,
    /// Whether the floor is of less than a slot, rounded up.
    pub(super) rounded: bool,
}

impl Floors {
    pub(super) fn new(lanes: &[LaneConfig; 3], tenants: &Tenants) -> Self {
        let tenants = tenants.iter().map(|(id, tenant)| (Holder::Tenant(id), tenant.floor));
        let lanes = Lane::ALL.into_iter().map(|lane| (Holder::Lane(lane), lanes[lane as usize].floor));
        let floors = tenants.chain(lanes).filter(|(_, share)| *share > 0.0);
        Self { floors: floors.map(|(holder, share)| Floor { holder, share, last: 0 }).collect(), last: None }
    }

    /// Returns `true` if the floors come to all of so many slots, or to more.
    pub(super) fn fill(&self, limit: usize) -> bool {
        self.floors.iter().map(|floor| slots(floor.share, limit)).sum::<usize>() >= limit
    }

    /// A call went, by that floor or by its turn.
    pub(super) fn went(&mut self, by: Option<Holder>, grant: u64) {
        self.last = by;
        if let Some(floor) = self.floors.iter_mut().find(|floor| Some(floor.holder) == by) {
            floor.last = grant;
        }
    }
}

/// How many slots a share of them comes to: rounded down, but one at least.
pub(super) fn slots(share: f64, limit: usize) -> usize {
    if share > 0.0 { (exact(share, limit) as usize).max(1) } else { 0 }
}

fn exact(share: f64, limit: usize) -> f64 {
    // A tenth of ten is one slot, whatever floating point makes of it.
    share * limit as f64 + 1e-9
}

impl<W> Scheduler<W> {
    /// The call that goes because its tenant or its lane holds less than its floor.
    pub(super) fn by_floor(&mut self, now: Instant, rooms: &mut Rooms) -> Option<Pick> {
        let had = self.floors.last.is_some();
        let hungry = self.hungry();
        let due = hungry.into_iter().filter(|hungry| !(hungry.rounded && had));
        due.into_iter().find_map(|Hungry { holder, .. }| {
            let next = self.first_for(now, holder, rooms)?;
            Some(Pick { next, right: Right::Floor(holder) })
        })
    }

    pub(super) fn first_for(&mut self, now: Instant, holder: Holder, rooms: &mut Rooms) -> Option<Next> {
        match holder {
            Holder::Tenant(tenant) => self.first_of(now, tenant, rooms),
            Holder::Lane(lane) => self.first_in(now, lane, rooms),
        }
    }

    /// Tenants before lanes, the least served relative to its floor first; of equals the one that has not gone first for longest.
    pub(super) fn hungry(&self) -> Vec<Hungry> {
        let limit = self.upstream.slots();
        let mut hungry: Vec<_> = self
            .floors
            .floors
            .iter()
            .filter_map(|Floor { holder, share, last }| {
                let (held, waiting) = self.held_by(*holder);
                let floor = slots(*share, limit);
                let order = (matches!(holder, Holder::Lane(_)), held as f64 / floor as f64, *last);
                let (missing, rounded) =
                    (waiting.min(floor.saturating_sub(held)), exact(*share, limit) < 1.0);
                (missing > 0).then_some((order, Hungry { holder: *holder, missing, rounded }))
            })
            .collect();
        hungry.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        hungry.into_iter().map(|(_, hungry)| hungry).collect()
    }

    /// How many slots it holds, and how many of its calls wait.
    fn held_by(&self, holder: Holder) -> (usize, usize) {
        match holder {
            Holder::Tenant(id) => {
                self.tenants.get(id).map_or((0, 0), |tenant| (tenant.in_flight, tenant.waiting))
            }
            Holder::Lane(lane) => (self.by_lane[lane as usize], self.load.waiting(lane)),
        }
    }
}
