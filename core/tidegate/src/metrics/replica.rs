//! The series of a pool's replicas. A replica's series are removed when it leaves the pool.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter};

use super::families::Families;
use crate::placement::ReplicaView;

/// The causes of failed attempts at a replica, with the failure classes of each. Failures that the
/// request caused have no class here and are not counted.
const CAUSES: [(&str, &[&str]); 5] = [
    ("full", &["overloaded"]),
    ("limited", &["rate_limited"]),
    ("gone", &["connect", "connect_timeout"]),
    ("late", &["timeout", "first_token_timeout", "idle_timeout"]),
    ("broke", &["server_error", "transport", "truncated", "other"]),
];

/// The series of one replica, looked up once.
struct ReplicaMetrics {
    calls: IntCounter,
    /// In the order of [`CAUSES`].
    failures: [IntCounter; CAUSES.len()],
    hops: IntCounter,
    ejections: IntCounter,
    in_flight: Gauge,
    limit: Gauge,
    in_choice: Gauge,
}

impl ReplicaMetrics {
    fn new(families: &Families, labels: &[&str; 2]) -> Self {
        let [target, replica] = *labels;
        Self {
            calls: families.replica_calls.with_label_values(labels),
            failures: CAUSES
                .map(|(cause, _)| families.replica_failures.with_label_values(&[target, replica, cause])),
            hops: families.replica_hops.with_label_values(labels),
            ejections: families.replica_ejections.with_label_values(labels),
            in_flight: families.replica_in_flight.with_label_values(labels),
            limit: families.replica_limit.with_label_values(labels),
            in_choice: families.replica_in_choice.with_label_values(labels),
        }
    }

    fn set(&self, families: &Families, labels: &[&str; 2], view: &ReplicaView) {
        self.in_flight.set(view.requests as f64);
        self.limit.set(view.slots.as_ref().map_or(0, |slots| slots.limit) as f64);
        // A replica that left and came back counts from zero. Its series were removed too, unless
        // no export happened in between.
        self.ejections.inc_by(view.ejections.saturating_sub(self.ejections.get()));
        self.in_choice.set(f64::from(u8::from(view.is_eligible)));
        // An unknown value is not exported, so that a sum over replicas contains the known ones
        // only.
        match view.others {
            Some(others) => families.replica_others.with_label_values(labels).set(others),
            None => {
                let _ = families.replica_others.remove_label_values(labels);
            }
        }
    }
}

/// The series of all replicas of a pool, by base URL.
#[derive(Default)]
pub(super) struct Replicas(Mutex<HashMap<Arc<str>, ReplicaMetrics>>);

impl Replicas {
    /// Creates the series of the replicas that are `known` from the start.
    pub(super) fn of<'a>(
        families: &Families,
        target: &str,
        known: impl Iterator<Item = &'a Arc<str>>,
    ) -> Self {
        let series = |url: &Arc<str>| (url.clone(), ReplicaMetrics::new(families, &[target, url]));
        Self(Mutex::new(known.map(series).collect()))
    }

    /// Counts an attempt that was sent to the replica.
    pub(super) fn called(&self, families: &Families, target: &str, replica: &Arc<str>) {
        self.count(families, target, replica, |series| series.calls.inc());
    }

    /// Counts a failed attempt at the replica, by the cause of its failure class.
    pub(super) fn failed(&self, families: &Families, target: &str, replica: &Arc<str>, class: &str) {
        let Some(cause) = CAUSES.iter().position(|(_, classes)| classes.contains(&class)) else { return };
        self.count(families, target, replica, |series| {
            if let Some(counter) = series.failures.get(cause) {
                counter.inc();
            }
        });
    }

    /// Counts an attempt that the replica did not begin and that another replica got at once.
    pub(super) fn hopped(&self, families: &Families, target: &str, replica: &Arc<str>) {
        self.count(families, target, replica, |series| series.hops.inc());
    }

    fn count(
        &self,
        families: &Families,
        target: &str,
        replica: &Arc<str>,
        count: impl FnOnce(&ReplicaMetrics),
    ) {
        let mut known = self.0.lock();
        match known.get(replica) {
            Some(series) => count(series),
            // The replica joined after the last export, or it left with this call. In the second
            // case the next export removes the series.
            None => {
                count(
                    known
                        .entry(replica.clone())
                        .or_insert_with(|| ReplicaMetrics::new(families, &[target, replica])),
                );
            }
        }
    }

    /// Sets the gauges, and removes the series of replicas that have left.
    pub(super) fn set(&self, families: &Families, target: &str, views: &[ReplicaView]) {
        let mut known = self.0.lock();
        known.retain(|replica, _| {
            let stays = views.iter().any(|view| view.url == *replica);
            if !stays {
                families.remove(&[("target", target), ("replica", replica)]);
            }
            stays
        });
        for view in views {
            let series = known
                .entry(view.url.clone())
                .or_insert_with(|| ReplicaMetrics::new(families, &[target, &view.url]));
            series.set(families, &[target, &view.url], view);
        }
    }
}
