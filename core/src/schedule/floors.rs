//! Floors: slots that are a tenant's or a lane's own whenever it wants them. Idle ones are lent, and given back as calls end.

use std::time::Instant;

use super::Scheduler;
use super::ids::{TenantId, WaiterId};
use super::order::Pick;
use super::tenants::Tenants;
use crate::budget::Room;
use crate::config::LaneConfig;
use crate::context::Lane;

/// Whose a floor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Tenant(TenantId),
    Lane(Lane),
}

/// Everybody who has one, tenants first.
#[derive(Debug)]
pub(super) struct Floors(Vec<(Holder, f64)>);

impl Floors {
    pub(super) fn new(lanes: &[LaneConfig; 3], tenants: &Tenants) -> Self {
        let tenants = tenants.iter().map(|(id, tenant)| (Holder::Tenant(id), tenant.floor));
        let lanes = Lane::ALL.into_iter().map(|lane| (Holder::Lane(lane), lanes[lane as usize].floor));
        Self(tenants.chain(lanes).filter(|(_, share)| *share > 0.0).collect())
    }
}

/// How many slots a share of them comes to: rounded down, but one at least.
pub(super) fn slots(share: f64, limit: usize) -> usize {
    // A tenth of ten is one slot, whatever floating point makes of it.
    if share > 0.0 { ((share * limit as f64 + 1e-9) as usize).max(1) } else { 0 }
}

impl<W> Scheduler<W> {
    /// The call that goes because its tenant or its lane holds less than its floor.
    pub(super) fn by_floor(&mut self, now: Instant, room: &Room) -> Option<Pick> {
        let hungry = self.hungry();
        let call = hungry.into_iter().find_map(|(holder, _)| self.first_for(now, holder, room))?;
        Some(Pick { call, by_floor: true })
    }

    pub(super) fn first_for(&mut self, now: Instant, holder: Holder, room: &Room) -> Option<WaiterId> {
        match holder {
            Holder::Tenant(tenant) => self.first_of(now, tenant, room),
            Holder::Lane(lane) => self.first_in(now, lane, room),
        }
    }

    /// Who waits and holds less than its floor, and by how many slots: tenants before lanes, the least served first.
    pub(super) fn hungry(&self) -> Vec<(Holder, usize)> {
        let mut hungry: Vec<_> = self
            .floors
            .0
            .iter()
            .filter_map(|(holder, share)| {
                let (held, waiting) = self.held_by(*holder);
                let floor = slots(*share, self.settings.limit);
                let order = (matches!(holder, Holder::Lane(_)), held as f64 / floor as f64);
                (held < floor && waiting > 0).then_some((order, *holder, waiting.min(floor - held)))
            })
            .collect();
        hungry.sort_by(|(a, ..), (b, ..)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        hungry.into_iter().map(|(_, holder, missing)| (holder, missing)).collect()
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
