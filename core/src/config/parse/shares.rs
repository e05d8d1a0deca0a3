//! What tenants and lanes have to themselves at a target.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rates::TOKENS;
use super::section::{Given, Section};
use super::value::{count, duration, flag, number, or_none, whole};
use super::{CAP, QUEUE};
use crate::config::{Lane, LaneConfig, TargetConfig, TenantConfig};

pub(super) const TENANT: &[&str] = &["weight", "cap", "queue", "floor", "tpm", "shed"];
pub(super) const LANES: &[&str] =
    &[Lane::Interactive.as_str(), Lane::Standard.as_str(), Lane::Batch.as_str()];
pub(super) const LANE: &[&str] = &["floor", "queue", "wait", "ttft"];

/// Tenants by their ids.
pub(super) type Tenants = BTreeMap<Arc<str>, TenantConfig>;

/// Tenants by id, each over what a lower layer said of it, key by key.
pub(super) fn tenants(given: Given<'_>, into: &mut Tenants) {
    for (id, given) in given.named() {
        tenant(given, into.entry(Arc::from(id)).or_default());
    }
}

/// `default_tenant`. Nobody knows how many others there will be, so none of them can be promised a share.
pub(super) fn other_tenants(given: Given<'_>, into: &mut TenantConfig) {
    let floor = given.child("floor");
    tenant(given, into);
    if let Some(given) = floor.filter(|_| into.floor > 0.0) {
        given.reject("a floor is promised to a named tenant; how many others there will be is not known");
    }
    into.floor = 0.0;
}

fn tenant(given: Given<'_>, into: &mut TenantConfig) {
    let Some(section) = given.section(TENANT) else { return };
    // A weight near zero would make start tags run away to infinity.
    section.set("weight", &mut into.weight, number(0.001..=1e6));
    section.set("cap", &mut into.cap, or_none(whole(CAP)));
    section.set("queue", &mut into.queue, or_none(whole(QUEUE)));
    section.set("floor", &mut into.floor, number(0.0..=1.0));
    section.set("tpm", &mut into.tpm, or_none(count(TOKENS)));
    section.set("shed", &mut into.shed, flag);
}

/// `lanes`, each over what a lower layer said of it.
pub(super) fn lanes(given: Given<'_>, into: &mut [LaneConfig; 3]) {
    let Some(section) = given.section(LANES) else { return };
    for (name, lane) in Lane::ALL.map(Lane::as_str).into_iter().zip(into) {
        let Some(section) = section.get(name).and_then(|given| given.section(LANE)) else { continue };
        section.set("floor", &mut lane.floor, number(0.0..=1.0));
        section.set("queue", &mut lane.queue, or_none(whole(QUEUE)));
        section.set("wait", &mut lane.wait, or_none(duration));
        section.set("ttft", &mut lane.ttft, or_none(duration));
    }
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
    let tenants =
        target.tenants.iter().map(|(id, tenant)| (super::section::join("tenants", id), tenant.floor));
    let lanes = Lane::ALL.iter().zip(&target.lanes);
    let lanes = lanes.map(|(lane, own)| (super::section::join("lanes", lane.as_str()), own.floor));
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
