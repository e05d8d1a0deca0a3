//! A pool behind the door.

use super::*;
use crate::config::PoolConfig;
use crate::placement::{Member, Observation};

/// Nothing else comes due: without a look it would wait until a call ends.
#[tokio::test(start_paused = true)]
async fn who_waits_goes_when_a_sign_of_life_brings_a_replica_back() {
    let config = PoolConfig { cap: 2, slow_start: None, ..PoolConfig::default() };
    let door = over(&Settings { pool: Some(config), ..settings(65_536) });
    door.set_members(&["http://a:8000", "http://b:8000"].map(Member::new));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(door.acquire(ticket()).await.expect("a slot"));
    }
    let id = held[0].placed().expect("placed").id;
    for _ in 0..2 {
        tokio::time::advance(ms(400)).await;
        door.observe(id, Observation::ProbeTimeout);
    }
    let second = held.iter().rposition(|permit| permit.placed().expect("placed").id == id).expect("two");
    drop(held.remove(second));
    let start = now();
    let mut waits = std::pin::pin!(door.acquire(ticket()));
    assert!(poll_once(waits.as_mut()).is_pending(), "its replica is silent, and the other full");
    held[0].on_alive();
    assert_eq!(waits.await.expect("it is back").placed().expect("placed").id, id);
    assert_eq!(now(), start);
}
