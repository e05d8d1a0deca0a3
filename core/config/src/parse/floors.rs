//! Checks the floors, which are the shares of the slots that are reserved for tenants and lanes.

use crate::schema::{Given, join};
use crate::{Lane, TargetConfig, TenantConfig};

/// Reports a floor of `default_tenant`, and sets it to 0. The number of tenants that share these
/// settings is not known, so their floors could sum to more than 1.
pub(super) fn reject_default_floor(given: &Given<'_>, tenant: &mut TenantConfig) {
    if let Some(floor) = given.get("default_tenant.floor").filter(|_| tenant.floor > 0.0) {
        floor.reject("only named tenants can have a floor; remove it, or name the tenants in \"tenants\"");
    }
    tenant.floor = 0.0;
}

/// Reports the floors of a target if they sum to more than 1, and `given`, its table, sets
/// `tenants` or `lanes` itself. Inherited floors are reported where they are set.
pub(super) fn check_floors(given: &Given<'_>, target: &TargetConfig) {
    let own = given.get("tenants").or_else(|| given.get("lanes"));
    if let (Some(given), Some(text)) = (own, floors_above_one(target)) {
        given.reject(text);
    }
}

/// The maximum number of floors that an error lists.
const MAX_SHOWN: usize = 4;
/// The accepted rounding error of a sum of decimal shares, such as 0.7 + 0.2 + 0.1.
const TOLERANCE: f64 = 1e-9;

/// Returns the text of the problem if the floors of a target sum to more than 1, otherwise `None`.
/// The text lists the largest floors first.
fn floors_above_one(target: &TargetConfig) -> Option<String> {
    let tenants = target.tenants.iter().map(|(id, tenant)| (join("tenants", id), tenant.floor));
    let lanes =
        Lane::ALL.iter().zip(&target.lanes).map(|(lane, own)| (join("lanes", lane.as_str()), own.floor));
    let mut floors: Vec<(String, f64)> = tenants.chain(lanes).filter(|(_, floor)| *floor > 0.0).collect();
    let sum: f64 = floors.iter().map(|(_, floor)| floor).sum();
    if sum <= 1.0 + TOLERANCE {
        return None;
    }
    // The sort is stable: equal floors stay in the order of the configuration.
    floors.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut named: Vec<String> =
        floors.iter().take(MAX_SHOWN).map(|(path, floor)| format!("{path} {floor}")).collect();
    if let Some(more) = floors.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    // Rounded to nine decimals, so that rounding errors are not shown.
    let sum = (sum / TOLERANCE).round() * TOLERANCE;
    let sum = format!("{sum:.9}");
    let sum = sum.trim_end_matches('0').trim_end_matches('.');
    Some(format!("the floors sum to {sum}, above 1 ({}); lower one of them", named.join(", ")))
}
