//! Floors: slots that are reserved for a tenant or a lane while it has waiting calls. Other calls
//! may borrow unused reserved slots, and return them when they end.
//!
//! A floor of less than one slot is rounded up to one. With few slots, such floors could add up to
//! more than all slots. Therefore, after a waiting call was dispatched for any floor, the next one
//! is not dispatched for a rounded floor, so that other calls get slots, too.

use super::{GrantId, TenantId, Tenants};
use crate::Lane;
use tidegate_config::LaneConfig;

/// The tenant or lane for which a floor reserves slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Tenant(TenantId),
    Lane(Lane),
}

/// A share of the slots that is reserved for a tenant or lane while it has waiting calls.
#[derive(Debug)]
struct Floor {
    holder: Holder,
    /// The floor as a share of the current number of slots, greater than 0 and at most 1.
    share: f64,
    /// The last grant that was dispatched for this floor, or `None` if there was none.
    last: Option<GrantId>,
}

/// All floors of a scheduler, those of tenants first.
#[derive(Debug)]
pub(super) struct Floors {
    floors: Vec<Floor>,
    /// Whether the last waiting call was dispatched for a floor.
    pub(super) last_was_for_floor: bool,
}

/// A tenant or lane that has waiting calls and fewer slots than its floor reserves.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderFloor {
    pub(super) holder: Holder,
    /// The number of further slots that the holder could use within its floor: at most as many as
    /// it has waiting calls.
    pub(super) missing: usize,
    /// Whether the floor is less than one slot and was rounded up to one.
    pub(super) rounded: bool,
}

impl Floors {
    pub(super) fn new(lanes: &[LaneConfig; 3], tenants: &Tenants) -> Self {
        let tenants = tenants.iter().map(|(id, tenant)| (Holder::Tenant(id), tenant.floor));
        let lanes = Lane::ALL.into_iter().map(|lane| (Holder::Lane(lane), lanes[lane as usize].floor));
        let floors = tenants.chain(lanes).filter(|(_, share)| *share > 0.0);
        let floors = floors.map(|(holder, share)| Floor { holder, share, last: None }).collect();
        Self { floors, last_was_for_floor: false }
    }

    /// Returns `true` if the floors add up to `limit` slots or more.
    pub(super) fn fill_limit(&self, limit: usize) -> bool {
        self.floors.iter().map(|floor| floor_slots(floor.share, limit)).sum::<usize>() >= limit
    }

    /// Returns the floor of a lane as a share of the slots (0 to 1), or 0 if it has none.
    pub(super) fn share_of(&self, lane: Lane) -> f64 {
        let of_lane = |floor: &&Floor| floor.holder == Holder::Lane(lane);
        self.floors.iter().find(of_lane).map_or(0.0, |floor| floor.share)
    }

    /// Returns the holders that have waiting calls and fewer slots than their floor at a limit of
    /// `limit` slots. `of` returns the slots that a holder has, and the number of its waiting
    /// calls.
    ///
    /// Tenants come before lanes. Within each, the holder that uses the smallest part of its floor
    /// comes first; among equals, the one for which a call was dispatched longest ago.
    pub(super) fn under(&self, limit: usize, of: impl Fn(Holder) -> (usize, usize)) -> Vec<UnderFloor> {
        let mut under: Vec<_> = self
            .floors
            .iter()
            .filter_map(|Floor { holder, share, last }| {
                let (held, waiting) = of(*holder);
                let floor = floor_slots(*share, limit);
                let order = (matches!(holder, Holder::Lane(_)), held as f64 / floor as f64, *last);
                let (missing, rounded) =
                    (waiting.min(floor.saturating_sub(held)), exact_slots(*share, limit) < 1.0);
                (missing > 0).then_some((order, UnderFloor { holder: *holder, missing, rounded }))
            })
            .collect();
        under.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        under.into_iter().map(|(_, under)| under).collect()
    }

    /// Records that the grant was dispatched for the floor of `by`, or for no floor if `by` is
    /// `None`.
    pub(super) fn on_dispatch(&mut self, by: Option<Holder>, grant: GrantId) {
        self.last_was_for_floor = by.is_some();
        if let Some(floor) = self.floors.iter_mut().find(|floor| Some(floor.holder) == by) {
            floor.last = Some(grant);
        }
    }
}

/// Returns a floor in slots for a share of `limit`: rounded down, but at least one. Returns 0 if
/// the share is 0.
pub(super) fn floor_slots(share: f64, limit: usize) -> usize {
    if share > 0.0 { (exact_slots(share, limit) as usize).max(1) } else { 0 }
}

/// Returns a share of `limit` in slots, before rounding.
fn exact_slots(share: f64, limit: usize) -> f64 {
    // A tenth of ten must be one slot despite floating-point errors.
    share * limit as f64 + 1e-9
}
