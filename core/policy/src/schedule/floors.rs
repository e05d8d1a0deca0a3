//! Floors: slots reserved for a tenant or a lane whenever it wants them. Unused reserved slots may
//! be borrowed, and return as calls end.
//!
//! A floor of less than one slot is rounded up to one. With a small limit, such floors could add up
//! to more than all slots and shut out all others, so they go first only every other time.

use super::ids::TenantId;
use super::tenants::Tenants;
use crate::Lane;
use tidegate_config::LaneConfig;

/// The holder of a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Tenant(TenantId),
    Lane(Lane),
}

#[derive(Debug)]
struct Floor {
    holder: Holder,
    share: f64,
    /// The number of the grant that last went by this floor.
    last: u64,
}

/// All floors, tenants first.
#[derive(Debug)]
pub(super) struct Floors {
    floors: Vec<Floor>,
    /// The holder by whose floor the last call went, if it did.
    last: Option<Holder>,
}

/// A holder that waits and holds fewer slots than its floor.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderFloor {
    pub(super) holder: Holder,
    /// The number of slots missing.
    pub(super) missing: usize,
    /// Whether the floor is less than one slot and was rounded up.
    pub(super) rounded: bool,
}

impl Floors {
    pub(super) fn new(lanes: &[LaneConfig; 3], tenants: &Tenants) -> Self {
        let tenants = tenants.iter().map(|(id, tenant)| (Holder::Tenant(id), tenant.floor));
        let lanes = Lane::ALL.into_iter().map(|lane| (Holder::Lane(lane), lanes[lane as usize].floor));
        let floors = tenants.chain(lanes).filter(|(_, share)| *share > 0.0);
        Self { floors: floors.map(|(holder, share)| Floor { holder, share, last: 0 }).collect(), last: None }
    }

    /// Returns `true` if the floors add up to at least `limit` slots.
    pub(super) fn fill(&self, limit: usize) -> bool {
        self.floors.iter().map(|floor| slots(floor.share, limit)).sum::<usize>() >= limit
    }

    /// Returns `true` if the last call went by a floor.
    pub(super) fn was_last(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the floor of a lane as a share of the slots.
    pub(super) fn share_of(&self, lane: Lane) -> f64 {
        let of_lane = |floor: &&Floor| floor.holder == Holder::Lane(lane);
        self.floors.iter().find(of_lane).map_or(0.0, |floor| floor.share)
    }

    /// Returns the holders that wait and hold fewer slots than their floor. `of` returns the slots
    /// that a holder has, and how many of its calls wait.
    ///
    /// Tenants come before lanes, and the least served relative to its floor first. Among equals,
    /// the one that has not gone first for longest comes first.
    pub(super) fn under(&self, limit: usize, of: impl Fn(Holder) -> (usize, usize)) -> Vec<UnderFloor> {
        let mut under: Vec<_> = self
            .floors
            .iter()
            .filter_map(|Floor { holder, share, last }| {
                let (held, waiting) = of(*holder);
                let floor = slots(*share, limit);
                let order = (matches!(holder, Holder::Lane(_)), held as f64 / floor as f64, *last);
                let (missing, rounded) =
                    (waiting.min(floor.saturating_sub(held)), exact(*share, limit) < 1.0);
                (missing > 0).then_some((order, UnderFloor { holder: *holder, missing, rounded }))
            })
            .collect();
        under.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        under.into_iter().map(|(_, under)| under).collect()
    }

    /// Records that a call went, and by whose floor.
    pub(super) fn on_dispatch(&mut self, by: Option<Holder>, grant: u64) {
        self.last = by;
        if let Some(floor) = self.floors.iter_mut().find(|floor| Some(floor.holder) == by) {
            floor.last = grant;
        }
    }
}

/// Returns a share of the limit in slots: rounded down, but at least one.
pub(super) fn slots(share: f64, limit: usize) -> usize {
    if share > 0.0 { (exact(share, limit) as usize).max(1) } else { 0 }
}

fn exact(share: f64, limit: usize) -> f64 {
    // A tenth of ten must be one slot despite floating-point errors.
    share * limit as f64 + 1e-9
}
