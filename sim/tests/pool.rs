//! Tests of the router in front of several engines, with unroutable and reset engines.

use std::time::Duration;

use tidegate_sim::engine::{EngineConfig, EventKind, SequenceId};
use tidegate_sim::pool::{EnginePool, Routing};

fn pool(workers: usize, routing: Routing) -> EnginePool {
    EnginePool::new(workers, &EngineConfig::default(), routing)
}

fn submit(pool: &mut EnginePool, ids: std::ops::Range<u64>) -> Vec<usize> {
    ids.filter_map(|id| pool.submit(Duration::ZERO, SequenceId(id), 100, 5).ok()).collect()
}

/// Advances the pool until it is idle. Returns the ids of the finished sequences in ascending
/// order.
fn finish(pool: &mut EnginePool) -> Vec<u64> {
    let mut events = Vec::new();
    while let Some(at) = pool.next_event() {
        pool.advance(at, &mut events);
    }
    let mut done: Vec<u64> =
        events.iter().filter(|event| event.kind == EventKind::Finished).map(|event| event.id.0).collect();
    done.sort_unstable();
    done
}

#[test]
fn router_skips_unroutable_engines() {
    let mut turns = pool(3, Routing::RoundRobin);
    turns.set_routable(1, false);
    assert_eq!(submit(&mut turns, 0..4), [0, 2, 0, 2]);
    turns.set_routable(1, true);
    assert_eq!(submit(&mut turns, 4..7), [0, 1, 2]);
    let mut least = pool(3, Routing::LeastLoaded);
    least.set_routable(0, false);
    assert_eq!(submit(&mut least, 0..4), [1, 2, 1, 2]);
    // If no engine is routable, the router uses any engine, because it has no queue of its own.
    let mut none = pool(2, Routing::RoundRobin);
    none.set_routable(0, false);
    none.set_routable(1, false);
    assert_eq!(submit(&mut none, 0..2), [0, 1]);
}

#[test]
fn reset_drops_only_the_sequences_of_that_engine() {
    let mut pool = pool(2, Routing::RoundRobin);
    submit(&mut pool, 0..6);
    assert_eq!(pool.reset(1), [1, 3, 5].map(SequenceId));
    assert_eq!(pool.reset(1), []);
    assert!(!pool.abort(SequenceId(3)));
    assert_eq!((pool.running() + pool.waiting(), pool.engines()[1].blocks().used()), (3, 0));
    assert_eq!(finish(&mut pool), [0, 2, 4]);
}

#[test]
fn lower_max_num_seqs_applies_to_later_sequences() {
    let mut pool = pool(1, Routing::RoundRobin);
    submit(&mut pool, 0..4);
    let mut events = Vec::new();
    let first = pool.next_event().unwrap();
    pool.advance(first, &mut events);
    let running = pool.running();
    pool.set_max_num_seqs(2);
    submit(&mut pool, 4..6);
    let second = pool.next_event().unwrap();
    pool.advance(second, &mut events);
    assert!(running > 2);
    assert_eq!((pool.running(), pool.waiting()), (running, 6 - running));
    assert_eq!(finish(&mut pool), [0, 1, 2, 3, 4, 5]);
}
