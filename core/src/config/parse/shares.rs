//! What tenants and lanes have to themselves at a target.

use crate::config::schema::given::{Section, join};
use crate::config::{Lane, TargetConfig, TenantConfig};

/// Rejects a floor of `default_tenant`, because the number of tenants without a name is not known.
pub(super) fn no_default_floor(section: &Section<'_>, tenant: &mut TenantConfig) {
    let given = section.get("default_tenant").and_then(|given| given.child("floor"));
    if let Some(given) = given.filter(|_| tenant.floor > 0.0) {
        given.reject("a floor is promised to a named tenant; how many others there will be is not known");
    }
    tenant.floor = 0.0;
}

/// Floors that promise more than all slots, where a target says so; what is inherited whole was told where it was written.
pub(super) fn check_floors(section: &Section<'_>, target: &TargetConfig) {
    if let Some(text) = floors_above_one(target).filter(|_| section.has("tenants") || section.has("lanes")) {
        section.reject(&["tenants", "lanes"], text);
    }
}

/// More would not be read, and the ids of tenants are not for every eye.
const SHOWN: usize = 4;
/// What a sum of shares may be off by, written as people write them (0.7 + 0.2 + 0.1).
const ROUNDING: f64 = 1e-9;

/// Names the floors whose sum is above 1, the largest first.
pub(super) fn floors_above_one(target: &TargetConfig) -> Option<String> {
    let tenants = target.tenants.iter().map(|(id, tenant)| (join("tenants", id), tenant.floor));
    let lanes = Lane::ALL.iter().zip(&target.lanes);
    let lanes = lanes.map(|(lane, own)| (join("lanes", lane.as_str()), own.floor));
    let mut floors: Vec<(String, f64)> = tenants.chain(lanes).filter(|(_, floor)| *floor > 0.0).collect();
    let sum: f64 = floors.iter().map(|(_, floor)| floor).sum();
    if sum <= 1.0 + ROUNDING {
        return None;
    }
    // Stable, so that equal ones stay in the order of the file's kinds.
    floors.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut named: Vec<String> =
        floors.iter().take(SHOWN).map(|(path, floor)| format!("{path} {floor}")).collect();
    if let Some(more) = floors.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    let sum = (sum / ROUNDING).round() * ROUNDING;
    Some(format!("the floors sum to {}, above 1 ({}); lower one of them", trimmed(sum), named.join(", ")))
}

/// At most nine decimals, and no zeros at the end of them.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
