//! Tests of the pool's policy in which each event is given explicitly, and their common helpers.

mod health;
mod members;
mod partners;
mod polls;
mod properties;
mod rejections;
mod select;

use std::time::{Duration, Instant};
use tidegate_config::ReplicaConfig;
use tidegate_share::PlacementEvent;

use super::*;

/// Returns a placement over `replicas` replicas about which nothing is known yet, with default
/// settings, and the time at which they joined.
fn pool(replicas: usize) -> (Placement, Instant) {
    with(replicas, PoolConfig::default())
}

fn with(replicas: usize, config: PoolConfig) -> (Placement, Instant) {
    let now = crate::testing::epoch();
    let mut pool = Placement::new(&config, 7);
    let joined = pool.set_members(now, &members(replicas));
    assert_eq!(joined.len(), replicas);
    (pool, now)
}

fn members(count: usize) -> Vec<ReplicaConfig> {
    (0..count).map(|n| ReplicaConfig::new(&format!("http://10.0.0.{n}:8000/"))).collect()
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn work(input: u64) -> Work {
    Work { input, output: 100 }
}

/// Returns the requirements of a call whose prompt has the prefixes with these hashes.
fn wants(prefixes: &[u64]) -> Wants {
    Wants { affinity: Affinity { prefixes: prefixes.into(), ..Affinity::default() }, ..Wants::default() }
}

impl Placement {
    /// Sends a call to the replica that the policy chooses among those that are eligible and can
    /// serve the call. Returns `None` if there is no such replica.
    fn place(&mut self, now: Instant, wants: Option<&Wants>, work: Work) -> Option<PlacedCall> {
        let open = self.eligible(now).and(self.serving(wants, work.input));
        let at = self.choose(now, wants, work, open)?;
        assert!(open.contains(at));
        self.on_sent(now, at, wants, work)
    }

    /// Sends a call to the replica at the index `at`. The replica accepts it, and the call ends.
    fn accept(&mut self, now: Instant, at: usize) {
        let Some(mut call) = self.on_sent(now, at, None, work(1)) else { return };
        self.on_accepted(now, &mut call);
        let _ = self.on_ended(call);
    }

    /// Sends a call to the replica at the index `at`. The call fails with this fault and ends.
    fn fault(&mut self, now: Instant, at: usize, fault: Fault) {
        let Some(call) = self.on_sent(now, at, None, work(1)) else { return };
        self.on_failed(now, &call, fault);
        let _ = self.on_ended(call);
    }

    /// Reports a successful probe of each replica, so that probes are trusted and later failures
    /// count.
    fn probe_all_ok(&mut self, now: Instant) {
        (0..self.replicas.len()).for_each(|at| self.observe_at(now, at, Observation::ProbeOk));
    }

    /// Reports two refused probes of the replica at an index, which take it down if probes are
    /// trusted.
    fn take_down(&mut self, now: Instant, at: usize) {
        (0..2).for_each(|_| self.observe_at(now, at, Observation::ConnectRefused));
    }

    /// Reports an observation of the replica at an index.
    fn observe_at(&mut self, now: Instant, at: usize, observation: Observation) {
        let id = self.replica(at).unwrap().placed.id;
        self.observe(now, id, observation);
    }

    fn state(&self, now: Instant, at: usize) -> &'static str {
        self.view(now)[at].state.as_str()
    }

    fn observe_metrics(&mut self, now: Instant, at: usize, running: f64, waiting: f64) {
        self.observe_at(
            now,
            at,
            Observation::Metrics(EngineMetrics { running, waiting, ..EngineMetrics::default() }),
        );
    }
}
