//! Checks the floors of tenants and lanes.

use crate::schema::{Given, join};
use crate::{Lane, TargetConfig, TenantConfig};

/// Rejects a floor of `default_tenant`, because the number of tenants without a name is not known.
pub(super) fn no_default_floor(given: &Given<'_>, tenant: &mut TenantConfig) {
    if let Some(floor) = given.get("default_tenant.floor").filter(|_| tenant.floor > 0.0) {
        floor.reject("only named tenants can have a floor; remove it, or name the tenants in \"tenants\"");
    }
    tenant.floor = 0.0;
}

/// Rejects floors of tenants and lanes whose sum is above 1. Inherited floors are checked where
/// they are written.
pub(super) fn check_floors(given: &Given<'_>, target: &TargetConfig) {
    if let Some(text) = floors_above_one(target).filter(|_| given.has("tenants") || given.has("lanes")) {
        given.reject_key(&["tenants", "lanes"], text);
    }
}

/// The number of floors that an error lists.
const SHOWN: usize = 4;
/// The rounding error that is accepted in the sum of decimal shares (0.7 + 0.2 + 0.1).
const ROUNDING: f64 = 1e-9;

/// Returns the error for floors whose sum is above 1. It lists the largest first.
fn floors_above_one(target: &TargetConfig) -> Option<String> {
    let tenants = target.tenants.iter().map(|(id, tenant)| (join("tenants", id), tenant.floor));
    let lanes =
        Lane::ALL.iter().zip(&target.lanes).map(|(lane, own)| (join("lanes", lane.as_str()), own.floor));
    let mut floors: Vec<(String, f64)> = tenants.chain(lanes).filter(|(_, floor)| *floor > 0.0).collect();
    let sum: f64 = floors.iter().map(|(_, floor)| floor).sum();
    if sum <= 1.0 + ROUNDING {
        return None;
    }
    // Stable: equal floors stay in order.
    floors.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut named: Vec<String> =
        floors.iter().take(SHOWN).map(|(path, floor)| format!("{path} {floor}")).collect();
    if let Some(more) = floors.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    // At most nine decimals.
    let sum = (sum / ROUNDING).round() * ROUNDING;
    let sum = format!("{sum:.9}");
    let sum = sum.trim_end_matches('0').trim_end_matches('.');
    Some(format!("the floors sum to {sum}, above 1 ({}); lower one of them", named.join(", ")))
}
