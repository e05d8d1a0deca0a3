//! Tests of pools: single rules, and property tests against a brute-force model.

use std::time::{Duration, Instant};
use tidegate_config::ReplicaConfig;

use super::*;
use crate::placement::{Model, ReplicaId};
use crate::schedule::tests::{admit, ms, queue, settings, ticket};
use crate::schedule::{Grant, Rule, SchedulerSettings, Ticket};
use crate::testing::epoch;
use crate::{Lane, Reason};
use tidegate_config::PoolConfig;

mod brute_force_model;
mod eligible_replicas;
mod properties;
mod rules;

/// Returns the settings of a pool whose replicas have `cap` slots each, without slow start.
fn of_slots(cap: usize) -> SchedulerSettings {
    let config = PoolConfig { cap, slow_start: None, ..PoolConfig::default() };
    SchedulerSettings {
        pool: Some(config),
        aging: Duration::from_secs(3600),
        kv_headroom: 0.0,
        ..settings(65_536)
    }
}

fn url(name: usize) -> String {
    format!("http://replica-{name}:8000")
}

fn members(names: impl IntoIterator<Item = usize>) -> Vec<ReplicaConfig> {
    names.into_iter().map(|name| ReplicaConfig::new(&url(name))).collect()
}

fn in_front_of<W>(settings: &SchedulerSettings, members: &[ReplicaConfig], now: Instant) -> Scheduler<W> {
    let mut scheduler = Scheduler::new(settings, now);
    scheduler.set_members(now, members);
    scheduler
}

fn call(tenant: &str, now: Instant) -> Ticket {
    ticket(tenant, Lane::Standard, now)
}

fn of_input(tokens: u64, now: Instant) -> Ticket {
    let mut call = call("a", now);
    (call.demand.input, call.demand.exact) = (tokens, true);
    call
}

fn wanting(model: Option<&str>, avoid: &[ReplicaId], now: Instant) -> Ticket {
    let wants = Wants { model: model.map(Into::into), avoid: avoid.to_vec(), ..Wants::default() };
    Ticket { wants: Some(Box::new(wants)), ..call("a", now) }
}

fn model(name: &str) -> Model {
    Model { name: name.into(), max_tokens: None, parent: None }
}

/// Returns the number in the URL of the replica that the call was assigned to.
fn at(grant: &Grant) -> usize {
    let url = &grant.placed().expect("placed").url;
    (0..128).find(|name| **url == self::url(*name)).expect("a member")
}

fn id_of<W>(scheduler: &Scheduler<W>, name: usize, now: Instant) -> ReplicaId {
    let views = scheduler.replicas(now);
    views.iter().find(|view| *view.url == url(name)).expect("a member").id
}

/// Dispatches all admissible waiting calls, and returns them with their slots.
fn draw<W>(scheduler: &mut Scheduler<W>, now: Instant) -> Vec<(W, Box<Grant>)> {
    std::iter::from_fn(|| scheduler.next(now)).collect()
}

/// Checks that no call waits or is in flight, and that no call is counted anywhere in the pool any
/// more.
fn assert_empty<W>(scheduler: &Scheduler<W>, now: Instant) {
    let pool = scheduler.capacity.upstream.as_pool().expect("a pool");
    assert!(pool.unanswered.is_empty() && pool.stranded.is_empty());
    assert_eq!(pool.classes.waiting(), 0);
    assert_eq!((scheduler.view(now).in_flight, scheduler.view(now).waiting), (0, 0));
    for replica in pool.replicas.iter().flatten() {
        assert_eq!(
            (replica.in_flight, replica.memory().map_or(0, |memory| memory.calls)),
            (0, 0),
            "{replica:?}"
        );
    }
    assert!(pool.placement.view(now).iter().all(|view| view.requests == 0));
}
