//! Tests of which replica a call is assigned to, and of slots and memory that are kept for other
//! calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::kv::Forecast;
use crate::placement::{EngineMetrics, Fault, Observation};
use crate::retry::RetryPath;

/// A call that has waited for the ageing time lacks memory, and the memory of one replica is kept
/// for it. Later calls of the same tenant and lane may use the other replicas.
#[test]
fn aged_head_without_memory_keeps_one_replica_from_its_line() {
    let now = epoch();
    let settings = SchedulerSettings { kv_tokens: Some(1_000), aging: ms(100), ..of_slots(10) };
    let mut scheduler = in_front_of(&settings, &members(0..3), now);
    let held = [600, 700, 800].map(|tokens| admit(&mut scheduler, now, &of_input(tokens, now)));
    let [nearest, second, _] = [0, 1, 2].map(|which: usize| at(&held[which]));
    queue(&mut scheduler, now, of_input(900, now), "large");
    let now = now + ms(100);
    assert!(scheduler.next(now).is_none());
    let small = admit(&mut scheduler, now, &of_input(200, now));
    assert_eq!(at(&small), second, "the only other that has so much");
    let waits = queue(&mut scheduler, now, of_input(250, now), "medium");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Reserved);
    scheduler.release(now, small);
    let (who, medium) = scheduler.next(now).expect("there is room beside the one that is kept");
    assert_eq!((who, at(&medium)), ("medium", second));
    let [first, others @ ..] = held;
    scheduler.release(now, first);
    let (who, large) = scheduler.next(now).expect("all of one replica is free");
    assert_eq!((who, at(&large)), ("large", nearest));
    others.into_iter().chain([medium, large]).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// Two calls have waited for the ageing time: that of tenant a, which is first in the dispatch
/// order, and that of tenant b, which is only the first of its line (the waiting calls of its
/// tenant and lane). The memory of one replica is kept for the call of tenant b. Later calls of
/// that line may use the memory of the other replicas.
#[test]
fn aged_head_of_another_line_keeps_only_one_replica() {
    let now = epoch();
    let settings = SchedulerSettings { kv_tokens: Some(1_000), aging: ms(100), ..of_slots(10) };
    let mut scheduler = in_front_of(&settings, &members(0..3), now);
    for (name, serves) in [(0, "x"), (1, "y"), (2, "y")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let of = |tenant: &str, model: &str, tokens: u64| {
        let mut asked = wanting(Some(model), &[], now);
        (asked.tenant, asked.demand.input, asked.demand.exact) = (tenant.into(), tokens, true);
        asked
    };
    let held = [("x", 500), ("y", 600), ("y", 700)]
        .map(|(model, tokens)| admit(&mut scheduler, now, &of("a", model, tokens)));
    let (nearest, other) = (at(&held[1]), at(&held[2]));
    queue(&mut scheduler, now, of("a", "x", 900), "front");
    queue(&mut scheduler, now, of("b", "y", 900), "head");
    let now = now + ms(100);
    queue(&mut scheduler, now, of("b", "y", 350), "what has room for 350 is kept for the head of its line");
    assert!(scheduler.next(now).is_none());
    let small = admit(&mut scheduler, now, &of("b", "y", 200));
    assert_eq!(at(&small), other);
    let [x, first, second] = held;
    [x, first].into_iter().for_each(|grant| scheduler.release(now, grant));
    let went = draw(&mut scheduler, now);
    let places: Vec<_> = went.iter().map(|(who, grant)| (*who, at(grant))).collect();
    assert_eq!(places, [("front", 0), ("head", nearest)]);
    went.into_iter().for_each(|(_, grant)| scheduler.release(now, grant));
    [small, second].into_iter().for_each(|grant| scheduler.release(now, grant));
    draw(&mut scheduler, now).into_iter().for_each(|(_, grant)| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// If no other replica has a free slot, a call returns to a replica that has rejected it instead of
/// waiting, because that replica may accept the call by now.
#[test]
fn call_returns_to_a_tried_replica_rather_than_wait() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(1), &members(0..2), now);
    let ids = [0, 1].map(|name| id_of(&scheduler, name, now));
    let first = admit(&mut scheduler, now, &wanting(None, &[ids[0]], now));
    assert_eq!(at(&first), 1, "where it was not tried, while there is room");
    let again = admit(&mut scheduler, now, &wanting(None, &[ids[0]], now));
    assert_eq!(at(&again), 0);
    [first, again].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn forced_call_goes_to_a_replica_that_serves_its_model() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(2), &members(0..2), now);
    for (name, serves) in [(0, "large"), (1, "small")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let large = wanting(Some("large"), &[], now);
    let mut grant = admit(&mut scheduler, now, &large);
    let _ = scheduler.on_replica_failure(now, &mut grant, Fault::Full(Some(ms(900))));
    let (forced, _) = scheduler.force(now, &large);
    assert_eq!(at(&forced), 0, "the other does not know the model");
    [grant, forced].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// A replica temporarily reports a smaller memory, because one of its engines is missing in a poll
/// of its metrics. The calls in flight still count afterwards.
#[test]
fn resized_memory_keeps_its_calls() {
    let now = epoch();
    let told =
        |tokens| Observation::Metrics(EngineMetrics { kv_tokens: Some(tokens), ..EngineMetrics::default() });
    let mut scheduler = in_front_of(&of_slots(10), &members(0..1), now);
    let id = id_of(&scheduler, 0, now);
    scheduler.observe(now, id, told(1_000));
    let grant = admit(&mut scheduler, now, &of_input(800, now));
    scheduler.observe(now, id, told(500));
    assert_eq!(scheduler.view(now).kv.map(|kv| (kv.capacity, kv.calls)), Some((500, 1)));
    let waits = queue(&mut scheduler, now, of_input(300, now), "waits");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Kv);
    scheduler.observe(now, id, told(2_000));
    let (_, second) = scheduler.next(now).expect("there is room for both");
    assert_eq!(scheduler.view(now).kv.map(|kv| (kv.capacity, kv.calls)), Some((2_000, 2)));
    [grant, second].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn reported_memory_size_replaces_a_removed_configured_size() {
    let now = epoch();
    let told =
        |tokens| Observation::Metrics(EngineMetrics { kv_tokens: Some(tokens), ..EngineMetrics::default() });
    let mut named = members(0..1);
    named[0].kv_tokens = Some(300);
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(1), &named, now);
    let id = id_of(&scheduler, 0, now);
    scheduler.observe(now, id, told(500));
    scheduler.set_members(now, &members(0..1));
    scheduler.observe(now, id, told(500));
    assert_eq!(scheduler.view(now).kv.map(|kv| kv.capacity), Some(500));
}

#[test]
fn slot_free_for_others_does_not_prevent_preemption() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..of_slots(2) };
    let vip = tidegate_config::TenantConfig { floor: 0.5, ..Default::default() };
    configured.tenants.insert("vip".into(), vip);
    let mut scheduler = in_front_of(&configured, &members(0..2), now);
    for (name, serves) in [(0, "large"), (1, "small")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let borrowed: Vec<_> =
        (0..2).map(|_| admit(&mut scheduler, now, &wanting(Some("large"), &[], now))).collect();
    queue(&mut scheduler, now, Ticket { tenant: "vip".into(), ..wanting(Some("large"), &[], now) }, "vip");
    assert_eq!(scheduler.preempt(now), Some(borrowed[1].id), "the other replica has two slots");
    assert_eq!(scheduler.preempt(now), None, "one is on its way");
    borrowed.into_iter().for_each(|grant| scheduler.release(now, grant));
    let (_, grant) = scheduler.next(now).expect("the owner");
    scheduler.release(now, grant);
    assert_eq!(scheduler.preempt(now), None);
    assert_empty(&scheduler, now);
}

/// Two calls wait, each for a different replica. One call is preempted at each replica, not two
/// calls at the replica with the most recently admitted calls.
#[test]
fn slots_are_preempted_at_replicas_that_the_owner_may_use() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..of_slots(2) };
    let vip = tidegate_config::TenantConfig { floor: 0.25, ..Default::default() };
    for name in ["vip", "other"] {
        configured.tenants.insert(name.into(), vip.clone());
    }
    let mut scheduler = in_front_of(&configured, &members(0..2), now);
    for (name, serves) in [(0, "large"), (1, "small")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let mut fill =
        |of| (0..2).map(|_| admit(&mut scheduler, now, &wanting(Some(of), &[], now))).collect::<Vec<_>>();
    let (large, small) = (fill("large"), fill("small"));
    for (tenant, wants) in [("vip", "large"), ("other", "small")] {
        queue(
            &mut scheduler,
            now,
            Ticket { tenant: tenant.into(), ..wanting(Some(wants), &[], now) },
            tenant,
        );
    }
    assert_eq!(scheduler.preempt(now), Some(small[1].id), "the youngest");
    assert_eq!(scheduler.preempt(now), Some(large[1].id), "the other is of no use to the owner");
    assert_eq!(scheduler.preempt(now), None);
    large.into_iter().chain(small).for_each(|grant| scheduler.release(now, grant));
}

#[test]
fn nothing_is_preempted_at_a_replica_too_small_for_the_owner() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..of_slots(1) };
    let vip = tidegate_config::TenantConfig { floor: 0.5, ..Default::default() };
    configured.tenants.insert("vip".into(), vip);
    let mut named = members(0..2);
    (named[0].kv_tokens, named[1].kv_tokens) = (Some(300), Some(1_000));
    let mut scheduler = in_front_of(&configured, &named, now);
    let small = id_of(&scheduler, 0, now);
    let at_large = admit(&mut scheduler, now, &wanting(None, &[small], now));
    let at_small = admit(&mut scheduler, now, &wanting(None, &[], now));
    queue(&mut scheduler, now, Ticket { tenant: "vip".into(), ..of_input(800, now) }, "vip");
    assert_eq!(scheduler.preempt(now), Some(at_large.id), "not the youngest");
    assert_eq!(scheduler.preempt(now), None);
    [at_large, at_small].into_iter().for_each(|grant| scheduler.release(now, grant));
}

#[test]
fn lowered_limit_of_a_pool_preempts_nothing() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..of_slots(2) };
    let vip = tidegate_config::TenantConfig { floor: 0.5, ..Default::default() };
    configured.tenants.insert("vip".into(), vip);
    let mut scheduler = in_front_of(&configured, &members(0..2), now);
    let mut held: Vec<_> = (0..4).map(|_| admit(&mut scheduler, now, &wanting(None, &[], now))).collect();
    queue(&mut scheduler, now, Ticket { tenant: "vip".into(), ..wanting(None, &[], now) }, "vip");
    scheduler.set_limit(2);
    for _ in 0..2 {
        assert_eq!(scheduler.preempt(now), None, "a slot that comes free is gone");
        scheduler.release(now, held.remove(0));
    }
    assert!(scheduler.preempt(now).is_some());
    held.into_iter().for_each(|grant| scheduler.release(now, grant));
}

/// A call is rejected by the only replica with a free slot, where it had been tried before. The
/// result is [`RetryPath::AllReplicasFull`], so the call waits briefly although the replica asked
/// for no delay.
#[test]
fn call_that_all_replicas_rejected_waits() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(2), &members(0..2), now);
    let ids = [0, 1].map(|name| id_of(&scheduler, name, now));
    let busy: Vec<_> = (0..2).map(|_| admit(&mut scheduler, now, &wanting(None, &[ids[0]], now))).collect();
    assert!(busy.iter().all(|grant| at(grant) == 1));
    let mut again = admit(&mut scheduler, now, &wanting(None, &[ids[0]], now));
    assert_eq!(at(&again), 0);
    // There is an untried replica, but it is full: to retry elsewhere would send the call back here
    // at once.
    assert_eq!(
        scheduler.on_replica_failure(now, &mut again, Fault::Full(Some(Duration::ZERO))),
        RetryPath::AllReplicasFull
    );
    busy.into_iter().chain([again]).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// Returns a call with `input` tokens of four bytes each. The first `common` tokens are the same in
/// all calls.
fn beginning_with(common: u64, input: u64, now: Instant) -> Ticket {
    let chunks = (1..=common * 4 / 1_024).map(|nth| (nth, nth * 1_024));
    let affinity = crate::placement::Affinity::from_hashes_with_lengths(None, chunks, input * 4);
    Ticket { wants: Some(Box::new(Wants { affinity, ..Wants::default() })), ..of_input(input, now) }
}

fn told(tokens: u64, shares_prefixes: bool) -> Observation {
    Observation::Metrics(EngineMetrics {
        kv_tokens: Some(tokens),
        shares_prefixes,
        ..EngineMetrics::default()
    })
}

#[test]
fn common_prefix_is_held_once_if_the_replica_caches_prefixes() {
    let now = epoch();
    for (shares, least, most) in [(false, 25, 25), (true, 420, 430)] {
        let mut scheduler: Scheduler<usize> = in_front_of(&of_slots(1_000), &members(0..1), now);
        let id = id_of(&scheduler, 0, now);
        scheduler.observe(now, id, told(800_000, shares));
        let first = admit(&mut scheduler, now, &beginning_with(30_000, 31_500, now));
        for who in 0..600 {
            // All calls wait before there is anything to share.
            scheduler.enqueue(now, beginning_with(30_000, 31_500, now), who);
        }
        let went = draw(&mut scheduler, now);
        assert!((least..=most).contains(&(went.len() + 1)), "{} went", went.len() + 1);
        assert!(went.iter().map(|(who, _)| *who).eq(0..went.len()), "in the order in which they came");
        went.into_iter().for_each(|(_, grant)| scheduler.release(now, grant));
        scheduler.release(now, first);
        while let Some((_, grant)) = scheduler.next(now) {
            scheduler.release(now, grant);
        }
        assert_empty(&scheduler, now);
    }
}

#[test]
fn call_goes_to_the_replica_that_holds_its_prefix_if_only_that_one_has_memory() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(10), &members(0..2), now);
    for name in 0..2 {
        let id = id_of(&scheduler, name, now);
        scheduler.observe(now, id, told(40_000, true));
    }
    let held = [admit(&mut scheduler, now, &beginning_with(20_000, 21_000, now)), {
        let mut other = beginning_with(0, 21_000, now);
        other.demand.output = 9;
        admit(&mut scheduler, now, &other)
    }];
    assert_ne!(at(&held[0]), at(&held[1]));
    let second = admit(&mut scheduler, now, &beginning_with(20_000, 24_000, now));
    assert_eq!(at(&second), at(&held[0]));
    // Cached blocks that no call holds save no memory.
    let [first, other] = held;
    [first, second].into_iter().for_each(|grant| scheduler.release(now, grant));
    let alone = admit(&mut scheduler, now, &beginning_with(0, 30_000, now));
    queue(&mut scheduler, now, beginning_with(20_000, 24_000, now), ());
    [alone, other].into_iter().for_each(|grant| scheduler.release(now, grant));
    draw(&mut scheduler, now).into_iter().for_each(|(_, grant)| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// Calls that were dispatched before a replica reported its memory size count once it has.
#[test]
fn calls_that_go_before_the_size_is_known_are_counted_once_it_is() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(10), &members(0..1), now);
    let early = admit(&mut scheduler, now, &of_input(800, now));
    assert_eq!(scheduler.view(now).kv, None);
    scheduler.observe(now, id_of(&scheduler, 0, now), told(1_000, false));
    assert_eq!(scheduler.view(now).kv.map(|kv| (kv.capacity, kv.calls, kv.held)), Some((1_000, 1, 800)));
    let waits = queue(&mut scheduler, now, of_input(300, now), "waits");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Kv);
    scheduler.release(now, early);
    let (_, grant) = scheduler.next(now).expect("there is room");
    scheduler.release(now, grant);
    assert_empty(&scheduler, now);
}

/// The forecast of the call grows between the decision and the assignment, as if a call at another
/// replica had ended. The call still goes to a replica with a free slot.
#[test]
fn call_whose_forecast_grows_while_it_is_placed_goes_to_a_replica_with_a_slot() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(2), &members(0..2), now);
    for name in 0..2 {
        scheduler.observe(now, id_of(&scheduler, name, now), told(10_000, false));
    }
    let long = admit(&mut scheduler, now, &of_input(5_000, now));
    let short = [10, 10].map(|input| admit(&mut scheduler, now, &of_input(input, now)));
    assert!(short.iter().all(|grant| at(grant) != at(&long)), "the longer queue is avoided");
    let asked = AtomicU64::new(0);
    let forecast = Forecast::deferred(move || {
        let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        Forecast::exact(if first { 10 } else { 20_000 })
    });
    let call = Ticket { forecast, ..of_input(10, now) };
    let call = admit(&mut scheduler, now, &call);
    assert_eq!(at(&call), at(&long));
    short.into_iter().chain([long, call]).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// The next wake time is found without checking each call that waits for memory, because time alone
/// does not release memory.
#[test]
fn few_calls_are_looked_at_for_the_next_wake_time() {
    let now = epoch();
    let configured = SchedulerSettings { aging: Duration::ZERO, ..of_slots(10) };
    let mut scheduler = in_front_of(&configured, &members(0..1), now);
    scheduler.observe(now, id_of(&scheduler, 0, now), told(1_000, false));
    let long = admit(&mut scheduler, now, &of_input(800, now));
    let looks = Arc::new(AtomicU64::new(0));
    let counter = looks.clone();
    let forecast = Forecast::deferred(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Forecast::exact(900)
    });
    for k in 0..200 {
        let tenant = Arc::from(format!("tenant-{k}"));
        scheduler.enqueue(now, Ticket { tenant, forecast: forecast.clone(), ..of_input(100, now) }, ());
    }
    looks.store(0, Ordering::Relaxed);
    assert!(scheduler.next_wake(now).is_some_and(|at| at > now));
    let looks = looks.load(Ordering::Relaxed);
    assert!(looks <= 40, "{looks} looks at 200 calls");
    scheduler.release(now, long);
}

/// Probes of two of three replicas fail. One of them stays eligible, because at most half of the
/// pool is ejected.
#[test]
fn ejected_replica_that_stays_eligible_gets_calls_last() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(2), &members(0..3), now);
    for name in 1..3 {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::ProbeFailed);
    }
    assert_eq!(scheduler.view(now).limit, 4);
    let held: Vec<_> = (0..4).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    let places: Vec<_> = held.iter().map(|grant| at(grant)).collect();
    assert_eq!(places[..2], [0, 0]);
    assert!(places[2..].iter().all(|at| *at != 0), "the healthy one has no slot: {places:?}");
    held.into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// The replica for which a call waits refuses connections, and never listed its models.
#[test]
fn waiting_call_is_reclassified_when_a_replica_refuses_connections() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(1), &members(0..2), now);
    scheduler.observe(now, id_of(&scheduler, 1, now), Observation::Models(vec![model("base")]));
    let first = admit(&mut scheduler, now, &wanting(Some("alias"), &[], now));
    assert_eq!(at(&first), 0);
    queue(&mut scheduler, now, wanting(Some("alias"), &[], now), "alias");
    assert!(scheduler.next(now).is_none());
    let id = id_of(&scheduler, 0, now);
    for observation in [Observation::ProbeOk, Observation::ConnectRefused, Observation::ConnectRefused] {
        scheduler.observe(now, id, observation);
    }
    let (_, second) = scheduler.next(now).expect("the other one may have the model");
    assert_eq!(at(&second), 1);
    [first, second].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn call_is_tried_at_each_replica_whose_list_lacks_its_model() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(1), &members(0..2), now);
    for name in 0..2 {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model("base")]));
    }
    let mut avoid = Vec::new();
    for expected in [RetryPath::OtherReplica, RetryPath::Backoff] {
        let mut grant = admit(&mut scheduler, now, &wanting(Some("adapter"), &avoid, now));
        avoid.push(grant.placed().expect("placed").id);
        assert_eq!(scheduler.on_replica_failure(now, &mut grant, Fault::NoModel), expected);
        scheduler.release(now, grant);
    }
    assert_ne!(avoid[0], avoid[1]);
    assert_empty(&scheduler, now);
}
