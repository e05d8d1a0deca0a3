//! The metrics of the replicas of a pool. The metrics of a replica that has left the pool are
//! removed before the next export, or when there are too many.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter};

use super::families::{Families, LabelValues, set_or_remove};
use crate::placement::{MAX_REPLICAS, ReplicaView};

/// Maximum number of replicas of a target that have series, because the metrics may never be
/// exported.
const MAX_KNOWN: usize = 2 * MAX_REPLICAS;

/// The causes of failed attempts at a replica, which are label values, each with the failure
/// classes that it covers. Failures that the request itself caused have no cause and are not
/// counted for the replica.
const CAUSES: [(&str, &[&str]); 5] = [
    ("full", &["overloaded"]),
    ("limited", &["rate_limited"]),
    ("gone", &["connect", "connect_timeout"]),
    ("late", &["timeout", "first_token_timeout", "idle_timeout"]),
    ("broke", &["server_error", "transport", "truncated", "other"]),
];

/// The Prometheus series of one replica. They are looked up once, not with each call.
struct ReplicaMetrics {
    calls: IntCounter,
    /// Number of failed attempts by cause, in the order of [`CAUSES`].
    failures: [IntCounter; CAUSES.len()],
    hops: IntCounter,
    ejections: IntCounter,
    in_flight: Gauge,
    limit: Gauge,
    in_choice: Gauge,
    /// Number of events of all replicas of the target up to the latest event of this one. 0 if this
    /// one had none.
    last_event: u64,
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
            last_event: 0,
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
        set_or_remove(&families.replica_others, labels, view.others);
    }
}

/// The Prometheus series of all replicas of one target, by the base URL of the replica. Empty if
/// the target is not a pool.
pub(super) struct ReplicaSeries {
    families: Arc<Families>,
    target: Arc<str>,
    known: Mutex<Known>,
}

/// The replicas that have series.
struct Known {
    by_url: HashMap<Arc<str>, ReplicaMetrics>,
    /// Number of events that were counted for any replica.
    events: u64,
}

impl ReplicaSeries {
    /// Creates the series of a target. The series of the replicas `listed`, which the configuration
    /// lists, exist from the start.
    pub(super) fn new<'a>(
        families: &Arc<Families>,
        target: &Arc<str>,
        listed: impl Iterator<Item = &'a Arc<str>>,
    ) -> Self {
        let metrics = |url: &Arc<str>| (url.clone(), ReplicaMetrics::new(families, &[target, url]));
        let known = Mutex::new(Known { by_url: listed.map(metrics).collect(), events: 0 });
        Self { families: families.clone(), target: target.clone(), known }
    }

    /// Counts an attempt that was sent to the replica.
    pub(super) fn on_attempt(&self, replica: &Arc<str>) {
        self.count(replica, |metrics| Some(&metrics.calls));
    }

    /// Counts a failed attempt at the replica by the cause that covers `class`, its failure class
    /// (see [`CAUSES`]). Does nothing if no cause covers it.
    pub(super) fn on_failure(&self, replica: &Arc<str>, class: &str) {
        let Some(cause) = CAUSES.iter().position(|(_, classes)| classes.contains(&class)) else { return };
        self.count(replica, |metrics| metrics.failures.get(cause));
    }

    /// Counts an attempt that the replica rejected before running it, after which the call was
    /// immediately retried at another replica.
    pub(super) fn on_retry_at_other_replica(&self, replica: &Arc<str>) {
        self.count(replica, |metrics| Some(&metrics.hops));
    }

    /// Increments the counter that `counter` selects from the series of the replica.
    ///
    /// Creates the series if they do not exist, because the replica joined or left the pool after
    /// the last export. If the replica left, the next export removes the series. If there are
    /// [`MAX_KNOWN`] others, those of the replica whose last event was longest ago are removed.
    fn count(&self, replica: &Arc<str>, counter: impl Fn(&ReplicaMetrics) -> Option<&IntCounter>) {
        let mut known = self.known.lock();
        let Known { by_url, events } = &mut *known;
        if !by_url.contains_key(replica) {
            if by_url.len() >= MAX_KNOWN
                && let Some((oldest, _)) = by_url.iter().min_by_key(|(_, metrics)| metrics.last_event)
            {
                let oldest = oldest.clone();
                by_url.remove(&oldest);
                self.remove(&oldest);
            }
            by_url.insert(replica.clone(), self.create(replica));
        }
        *events += 1;
        let Some(metrics) = by_url.get_mut(replica) else { return };
        metrics.last_event = *events;
        if let Some(counter) = counter(metrics) {
            counter.inc();
        }
    }

    fn create(&self, replica: &str) -> ReplicaMetrics {
        ReplicaMetrics::new(&self.families, &[&self.target, replica])
    }

    /// Removes the series of a replica.
    fn remove(&self, replica: &str) {
        let causes = CAUSES.map(|(cause, _)| cause).to_vec();
        let labels = [("target", vec![&*self.target]), ("replica", vec![replica]), ("cause", causes)];
        self.families.remove("replica", &LabelValues::from(labels));
    }

    /// Sets the gauges of the current replicas of the pool, and removes the series of replicas that
    /// have left. Called before the metrics are exported.
    pub(super) fn set(&self, views: &[ReplicaView]) {
        let by_url = &mut self.known.lock().by_url;
        by_url.retain(|replica, _| {
            let stays = views.iter().any(|view| view.url == *replica);
            if !stays {
                self.remove(replica);
            }
            stays
        });
        for view in views {
            let metrics = by_url.entry(view.url.clone()).or_insert_with(|| self.create(&view.url));
            metrics.set(&self.families, &[&self.target, &view.url], view);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_former_replicas_are_bounded_without_an_export() {
        let families = Arc::new(Families::new().expect("families"));
        let series = ReplicaSeries::new(&families, &"llm".into(), std::iter::empty());
        let stays = "http://stays".into();
        for n in 0..1_000 {
            series.on_attempt(&stays);
            series.on_attempt(&format!("http://replica-{n}").into());
        }
        let text = families.text();
        let calls = text.lines().filter(|line| line.starts_with("tidegate_replica_calls_total{"));
        assert_eq!(calls.count(), MAX_KNOWN);
        let expected = r#"tidegate_replica_calls_total{replica="http://stays",target="llm"} 1000"#;
        assert!(text.contains(expected), "{text}");
    }
}
