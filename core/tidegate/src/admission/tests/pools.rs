//! Tests of admission to a target that is a pool of replicas.

use super::*;
use crate::config::PoolConfig;
use crate::config::ReplicaConfig;
use crate::placement::Observation;

/// No other call ends. The waiting call must therefore be admitted because the replica recovers.
#[tokio::test(start_paused = true)]
async fn waiting_call_is_admitted_when_a_replica_recovers() {
    let config = PoolConfig { cap: 2, slow_start: None, ..PoolConfig::default() };
    let admission = with_settings(&SchedulerSettings { pool: Some(config), ..settings(65_536) });
    admission.set_members(&["http://a:8000", "http://b:8000"].map(ReplicaConfig::new));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(admission.acquire(ticket()).await.expect("a slot"));
    }
    let id = held[0].placed().expect("placed").id;
    for _ in 0..2 {
        tokio::time::advance(ms(400)).await;
        admission.observe(id, Observation::ProbeTimeout);
    }
    let second = held.iter().rposition(|permit| permit.placed().expect("placed").id == id).expect("two");
    drop(held.remove(second));
    let start = now();
    let mut waits = std::pin::pin!(admission.acquire(ticket()));
    assert!(poll_once(waits.as_mut()).is_pending(), "its replica is silent, and the other full");
    held[0].on_alive();
    assert_eq!(waits.await.expect("it is back").placed().expect("placed").id, id);
    assert_eq!(now(), start);
}
