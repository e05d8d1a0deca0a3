use super::*;
use crate::placement::{EngineMetrics, Fault, Observation, PollKind, ReplicaState};
use crate::retry::RetryPath;
use tidegate_config::OnFull;

#[test]
fn limit_is_the_sum_of_eligible_replicas_within_the_cap() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(3), &members(0..4), now);
    assert_eq!(scheduler.view(now).limit, 12);
    scheduler.observe(now, id_of(&scheduler, 1, now), Observation::ConnectRefused);
    assert_eq!(scheduler.view(now).limit, 9, "one is down");
    scheduler.set_limit(5);
    assert_eq!(scheduler.view(now).limit, 5);
    let held: Vec<_> = (0..5).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    let waits = queue(&mut scheduler, now, call("a", now), ());
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Slots);
    held.into_iter().for_each(|grant| scheduler.release(now, grant));
}

#[test]
fn each_replica_has_slots_of_its_own() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(2), &members(0..3), now);
    let mut held: Vec<_> = (0..6).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    for view in scheduler.replicas(now) {
        assert_eq!(view.slots.map(|slots| (slots.limit, slots.in_flight)), Some((2, 2)));
    }
    let waits = queue(&mut scheduler, now, call("a", now), "waits");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Slots);
    let freed = held.remove(3);
    let replica = at(&freed);
    scheduler.release(now, freed);
    let (_, grant) = scheduler.next(now).expect("there is a slot");
    assert_eq!(at(&grant), replica, "where there is one");
    held.into_iter().chain([grant]).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn call_waiting_for_a_replica_that_serves_it_is_overtaken() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(1), &members(0..2), now);
    for (name, serves) in [(0, "large"), (1, "small")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let large = admit(&mut scheduler, now, &wanting(Some("large"), &[], now));
    assert_eq!(at(&large), 0);
    let waits = queue(&mut scheduler, now, wanting(Some("large"), &[], now), "large");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Replicas);
    assert_eq!(scheduler.next(now).map(|(who, _)| who), None);
    let small = admit(&mut scheduler, now, &wanting(Some("small"), &[], now));
    assert_eq!(at(&small), 1, "nobody whom it could serve waits there");
    scheduler.release(now, large);
    let (who, large) = scheduler.next(now).expect("its replica has a slot");
    assert_eq!((who, at(&large)), ("large", 0));
    [large, small].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// A call that has waited for the ageing time needs a slot at the only replica that serves its
/// model. Calls for the other replica are dispatched, because they take nothing that this call
/// lacks.
#[test]
fn aged_call_whose_replicas_have_no_slot_blocks_no_other_call() {
    let now = epoch();
    let settings = SchedulerSettings { aging: ms(100), ..of_slots(1) };
    let mut scheduler = in_front_of(&settings, &members(0..2), now);
    for (name, serves) in [(0, "large"), (1, "small")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let held = ["large", "small"].map(|of| admit(&mut scheduler, now, &wanting(Some(of), &[], now)));
    queue(&mut scheduler, now, wanting(Some("large"), &[], now), "large");
    queue(&mut scheduler, now, wanting(Some("small"), &[], now), "small");
    let now = now + ms(500);
    let [large, small] = held;
    scheduler.release(now, small);
    let (who, small) = scheduler.next(now).expect("its replica has a slot");
    assert_eq!(who, "small");
    scheduler.release(now, small);
    let small = admit(&mut scheduler, now, &wanting(Some("small"), &[], now));
    [large, small].into_iter().for_each(|grant| scheduler.release(now, grant));
    let (who, large) = scheduler.next(now).expect("its turn");
    assert_eq!((who, at(&large)), ("large", 0));
    scheduler.release(now, large);
    assert_empty(&scheduler, now);
}

#[test]
fn memory_of_replicas_is_not_added_up() {
    let now = epoch();
    let settings = SchedulerSettings { kv_tokens: Some(1_000), ..of_slots(10) };
    let mut scheduler = in_front_of(&settings, &members(0..2), now);
    let held = [700, 700].map(|tokens| admit(&mut scheduler, now, &of_input(tokens, now)));
    assert_ne!(at(&held[0]), at(&held[1]));
    let waits = queue(&mut scheduler, now, of_input(500, now), "waits");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Kv);
    let beside = admit(&mut scheduler, now, &of_input(200, now));
    let refused = scheduler.try_admit(now, &of_input(1_001, now)).expect_err("no replica ever holds that");
    assert_eq!((refused.reason, refused.max_tokens), (Reason::TooLarge, Some(1_000)));
    assert_eq!(scheduler.view(now).kv.map(|kv| (kv.capacity, kv.calls)), Some((2_000, 3)));
    let [first, second] = held;
    scheduler.release(now, first);
    let (who, grant) = scheduler.next(now).expect("one has room now");
    assert_eq!(who, "waits");
    [second, beside, grant].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// The size of a replica's memory is the one in the replica's configuration, otherwise the one in
/// the target's configuration, otherwise the one that the replica reports.
#[test]
fn memory_size_is_configured_or_reported() {
    let now = epoch();
    let told =
        |tokens| Observation::Metrics(EngineMetrics { kv_tokens: Some(tokens), ..EngineMetrics::default() });
    let capacities = |scheduler: &Scheduler<()>| {
        let slots = scheduler.replicas(now).into_iter().filter_map(|view| view.slots);
        slots.map(|slots| slots.kv.map(|kv| kv.capacity)).collect::<Vec<_>>()
    };
    let mut named = members(0..2);
    named[0].kv_tokens = Some(300);
    let mut scheduler = in_front_of(&of_slots(1), &named, now);
    assert_eq!(capacities(&scheduler), [Some(300), None]);
    for name in 0..2 {
        scheduler.observe(now, id_of(&scheduler, name, now), told(500));
    }
    assert_eq!(capacities(&scheduler), [Some(300), Some(500)]);
    // The engine was restarted with other weights.
    let grant = admit(&mut scheduler, now, &of_input(400, now));
    assert_eq!(at(&grant), 1);
    scheduler.observe(now, id_of(&scheduler, 1, now), told(600));
    scheduler.release(now, grant);
    assert_eq!(capacities(&scheduler), [Some(300), Some(600)]);
    assert_empty(&scheduler, now);
    let configured = SchedulerSettings { kv_tokens: Some(900), ..of_slots(1) };
    let mut scheduler = in_front_of(&configured, &named, now);
    scheduler.observe(now, id_of(&scheduler, 1, now), told(600));
    assert_eq!(capacities(&scheduler), [Some(300), Some(900)]);
}

#[test]
fn aged_call_without_memory_reserves_one_replica() {
    let now = epoch();
    let settings = SchedulerSettings { kv_tokens: Some(1_000), aging: ms(100), ..of_slots(10) };
    let mut scheduler = in_front_of(&settings, &members(0..3), now);
    let held = [600, 700, 800].map(|tokens| admit(&mut scheduler, now, &of_input(tokens, now)));
    let nearest = at(&held[0]);
    queue(&mut scheduler, now, of_input(900, now), "large");
    let now = now + ms(100);
    assert!(scheduler.next(now).is_none());
    // All three replicas have enough memory for these calls. The replica with the most free memory
    // is kept for the large call.
    let batch = |tokens| Ticket { lane: Lane::Batch, ..of_input(tokens, now) };
    let small: Vec<_> = (0..3).map(|_| admit(&mut scheduler, now, &batch(50))).collect();
    assert!(small.iter().all(|grant| at(grant) != nearest));
    let waits = queue(&mut scheduler, now, batch(350), "medium");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Reserved);
    let [first, others @ ..] = held;
    scheduler.release(now, first);
    let (who, large) = scheduler.next(now).expect("all of one replica is free");
    assert_eq!((who, at(&large)), ("large", nearest));
    others.into_iter().chain(small).chain([large]).for_each(|grant| scheduler.release(now, grant));
    draw(&mut scheduler, now).into_iter().for_each(|(_, grant)| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn full_replica_gets_no_calls_and_rejected_calls_go_elsewhere() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(4), &members(0..2), now);
    let mut grant = admit(&mut scheduler, now, &wanting(None, &[], now));
    let (first, id) = (at(&grant), grant.placed().expect("placed").id);
    assert_eq!(
        scheduler.on_replica_failure(now, &mut grant, Fault::Full(Some(ms(700)))),
        RetryPath::OtherReplica
    );
    scheduler.release(now, grant);
    assert_eq!(scheduler.view(now).limit, 4);
    let mut again = admit(&mut scheduler, now, &wanting(None, &[id], now));
    assert_ne!(at(&again), first);
    assert_eq!(
        scheduler.on_replica_failure(now, &mut again, Fault::Full(Some(ms(900)))),
        RetryPath::AfterOutage
    );
    scheduler.release(now, again);
    let waits = queue(&mut scheduler, now, wanting(None, &[id], now), ());
    let why = scheduler.explain(now, waits).expect("waits");
    // As long as the replica asked for, plus a random delay.
    let back = scheduler.next_wake(now).expect("one comes back");
    assert!((ms(750)..=ms(800)).contains(&(back - now)));
    assert_eq!((why.rule, why.expected), (Rule::CoolDown, Some(back - now)));
    let now = back;
    let (_, grant) = scheduler.next(now).expect("one is back");
    assert_eq!(at(&grant), first, "the only one that there is, though it was tried");
    scheduler.release(now, grant);
    assert_empty(&scheduler, now);
}

/// When the delay for which a full replica asked is over, one call is sent as the half-open probe.
/// The others follow when the probe is accepted, or is not rejected for a second.
#[test]
fn one_call_probes_a_full_replica() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(4), &members(0..1), now);
    let running = admit(&mut scheduler, now, &call("a", now));
    let mut grant = admit(&mut scheduler, now, &call("a", now));
    scheduler.on_replica_failure(now, &mut grant, Fault::Full(Some(ms(300))));
    scheduler.release(now, grant);
    for _ in 0..3 {
        queue(&mut scheduler, now, call("a", now), ());
    }
    let now = now + ms(400);
    let (_, mut first) = scheduler.next(now).expect("its time is up");
    assert!(scheduler.next(now).is_none());
    scheduler.on_replica_failure(now, &mut first, Fault::Full(Some(ms(300))));
    scheduler.release(now, first);
    let now = now + ms(500);
    let (_, second) = scheduler.next(now).expect("its time is up again");
    assert!(scheduler.next(now).is_none());
    assert_eq!(scheduler.next_wake(now), Some(now + ms(1_000)));
    let later = now + ms(1_000);
    let (_, third) = scheduler.next(later).expect("it was taken in, as it seems");
    let fourth = admit(&mut scheduler, later, &call("a", now));
    queue(&mut scheduler, later, call("a", now), ());
    assert!(scheduler.next(later).is_none(), "there are four slots");
    [running, second, third, fourth].into_iter().for_each(|grant| scheduler.release(later, grant));
}

/// A probe that has not been rejected for a second counts as accepted. Its end changes nothing for
/// a later probe.
#[test]
fn end_of_an_earlier_probe_leaves_the_later_one() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(4), &members(0..1), now);
    let running = admit(&mut scheduler, now, &call("a", now));
    let reject = |scheduler: &mut Scheduler<()>, now, mut grant: Box<Grant>| {
        scheduler.on_replica_failure(now, &mut grant, Fault::Full(Some(ms(300))));
        scheduler.release(now, grant);
    };
    let full = admit(&mut scheduler, now, &call("a", now));
    reject(&mut scheduler, now, full);
    queue(&mut scheduler, now, call("a", now), ());
    let now = now + ms(400);
    let (_, slow) = scheduler.next(now).expect("the first probe");
    let now = now + ms(1_000);
    scheduler.tick(now);
    let full = admit(&mut scheduler, now, &call("a", now));
    reject(&mut scheduler, now, full);
    (0..2).for_each(|_| _ = queue(&mut scheduler, now, call("a", now), ()));
    let now = now + ms(500);
    let (_, probe) = scheduler.next(now).expect("the second probe");
    scheduler.release(now, slow);
    assert!(scheduler.next(now).is_none(), "the second probe is in flight");
    [running, probe].into_iter().for_each(|grant| scheduler.release(now, grant));
}

#[test]
fn failure_of_a_call_that_may_have_run_counts_against_the_call() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(4), &members(0..2), now);
    for fault in [Fault::Broke, Fault::Rejected] {
        let mut grant = admit(&mut scheduler, now, &call("a", now));
        assert_eq!(scheduler.on_replica_failure(now, &mut grant, fault), RetryPath::Backoff);
        scheduler.release(now, grant);
        assert_eq!(scheduler.view(now).limit, 8, "{fault:?}: one failure says nothing of a replica");
        assert!(scheduler.is_open() && !scheduler.is_cooling(now));
    }
}

#[test]
fn refusal_says_when_the_first_rate_limited_replica_returns() {
    let now = epoch();
    let settings = SchedulerSettings { on_full: OnFull::Refuse, ..of_slots(4) };
    let mut scheduler: Scheduler<()> = in_front_of(&settings, &members(0..2), now);
    let delays = [ms(4_000), ms(3_000)];
    for delay in delays {
        let mut grant = admit(&mut scheduler, now, &call("a", now));
        let path = scheduler.on_replica_failure(now, &mut grant, Fault::Limited(Some(delay)));
        assert_eq!(path, if delay == delays[0] { RetryPath::OtherReplica } else { RetryPath::AfterCoolDown });
        scheduler.release(now, grant);
    }
    let refused = scheduler.try_admit(now, &call("a", now)).expect_err("nobody is there");
    assert_eq!(refused.reason, Reason::CoolDown);
    assert!(refused.retry_after.is_some_and(|after| (ms(3_050)..=ms(3_100)).contains(&after)));
    assert_eq!(refused.why.map(|why| why.rule), Some(Rule::CoolDown));
}

/// Takes the replicas down for 40 s. Callers call again when their refusal says, for 30 s, and then
/// not for 10 s.
#[test]
fn refusal_by_a_pool_that_is_down_says_when_the_next_probe_is_answered() {
    let mut now = epoch();
    let settings = SchedulerSettings { on_full: OnFull::Refuse, ..of_slots(4) };
    let mut scheduler: Scheduler<()> = in_front_of(&settings, &members(0..2), now);
    let ids = [0, 1].map(|name| id_of(&scheduler, name, now));
    for observation in [Observation::ProbeOk, Observation::ConnectRefused, Observation::ConnectRefused] {
        ids.into_iter().for_each(|id| scheduler.observe(now, id, observation.clone()));
    }
    let poll = |scheduler: &mut Scheduler<()>, now, observation: Observation| {
        let due = scheduler.poll_requests(now).due.into_iter();
        let due: Vec<_> = due.filter(|poll| poll.kind == PollKind::Health).collect();
        due.iter().for_each(|poll| scheduler.observe(now, poll.to, observation.clone()));
        due.len()
    };
    let (down, mut call_again) = (now, now);
    while now < down + ms(30_000) {
        if now >= call_again {
            let refused = scheduler.try_admit(now, &call("a", now)).expect_err("no replica");
            assert_eq!(refused.reason, Reason::Outage);
            let after = refused.retry_after.expect("probes are sent");
            assert!((ms(1_000)..=ms(2_000)).contains(&after), "{after:?} at {:?}", now - down);
            call_again = now + after;
        }
        poll(&mut scheduler, now, Observation::ConnectRefused);
        now += ms(100);
    }
    now += ms(10_000);
    assert_eq!(poll(&mut scheduler, now, Observation::ProbeOk), 0, "an unused pool is not polled");
    let refused = scheduler.try_admit(now, &call("a", now)).expect_err("no replica");
    assert_eq!(refused.retry_after, Some(ms(1_000)));
    assert_eq!(poll(&mut scheduler, now, Observation::ProbeOk), 2, "the refused call needs a replica");
    let grant = admit(&mut scheduler, now + ms(1_000), &call("a", now));
    scheduler.release(now, grant);
}

#[test]
fn wait_budget_of_calls_that_fall_back_runs_without_a_replica() {
    for has_fallback in [false, true] {
        let now = epoch();
        let settings = SchedulerSettings { has_fallback, ..of_slots(4) };
        let mut scheduler = in_front_of(&settings, &[], now);
        queue(&mut scheduler, now, Ticket { wait: Some(ms(500)), ..call("a", now) }, ());
        assert!(scheduler.expired(now + ms(499)).is_empty());
        let refused = scheduler.expired(now + ms(500));
        let reasons: Vec<_> = refused.iter().map(|(_, refusal)| refusal.reason).collect();
        assert_eq!(reasons, if has_fallback { vec![Reason::Outage] } else { vec![] });
    }
}

#[test]
fn each_stranded_call_is_returned_once() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(4), &members(0..2), now);
    let mut held: Vec<_> = (0..8).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    let falls = at(&held[0]);
    let answered = held.iter_mut().find(|grant| at(grant) == falls).expect("the first");
    let answered_id = answered.id;
    scheduler.on_response_head(answered);
    let mut expected: Vec<_> = held
        .iter()
        .filter(|grant| at(grant) == falls && grant.id != answered_id)
        .map(|grant| grant.id)
        .collect();
    let over = held.iter().position(|grant| grant.id == expected[0]).expect("there");
    assert_eq!(scheduler.next_stranded(), None);
    for observation in [Observation::ProbeOk, Observation::ConnectRefused, Observation::ConnectRefused] {
        assert_eq!(scheduler.next_stranded(), None);
        scheduler.observe(now, id_of(&scheduler, falls, now), observation);
    }
    // The call ended by itself before it could be cancelled.
    scheduler.release(now, held.swap_remove(over));
    expected.remove(0);
    let mut fallen: Vec<_> = std::iter::from_fn(|| scheduler.next_stranded()).collect();
    assert!(!fallen.contains(&answered_id));
    fallen.sort_unstable();
    expected.sort_unstable();
    // The calls in flight when the replica went down, without the one that ended before.
    assert_eq!(fallen, expected);
    assert_eq!(scheduler.next_stranded(), None);
    held.into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn wait_budgets_stop_while_a_pool_has_no_replicas() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&of_slots(1), now);
    let asked = Ticket { wait: Some(ms(50)), ..call("a", now) };
    let waits = queue(&mut scheduler, now, asked, "waits");
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::Outage);
    let now = now + ms(500);
    assert!(scheduler.expired(now).is_empty() && scheduler.next(now).is_none());
    scheduler.set_members(now, &members(0..1));
    let (who, grant) = scheduler.next(now).expect("there is one");
    assert_eq!((who, at(&grant), grant.used_wait), ("waits", 0, Duration::ZERO));
    scheduler.release(now, grant);
    assert_empty(&scheduler, now);
}

#[test]
fn draining_replica_leaves_with_its_last_call() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(2), &members(0..2), now);
    let held: Vec<_> = (0..4).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    scheduler.set_members(now, &members(1..3));
    let views = scheduler.replicas(now);
    assert_eq!(views.iter().filter(|view| view.state == ReplicaState::Draining).count(), 1);
    assert_eq!(scheduler.view(now).limit, 4);
    let more: Vec<_> = (0..2).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    assert!(more.iter().all(|grant| at(grant) == 2));
    let (gone, stay): (Vec<_>, Vec<_>) = held.into_iter().partition(|grant| at(grant) == 0);
    gone.into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_eq!(scheduler.replicas(now).len(), 2);
    scheduler.set_members(now, &members(1..4));
    assert_eq!(scheduler.view(now).limit, 6, "one that joins may have its place");
    stay.into_iter().chain(more).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn waiting_calls_are_reclassified_when_replicas_change() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(1), &members(0..1), now);
    scheduler.observe(now, id_of(&scheduler, 0, now), Observation::Models(vec![model("a")]));
    let first = admit(&mut scheduler, now, &wanting(Some("a"), &[], now));
    queue(&mut scheduler, now, wanting(Some("a"), &[], now), "a");
    scheduler.set_members(now, &members(0..2));
    assert!(scheduler.next(now).is_none(), "one is known to serve it, and of the other it is not known");
    scheduler.observe(now, id_of(&scheduler, 1, now), Observation::Models(vec![model("a")]));
    let (_, second) = scheduler.next(now).expect("another serves it");
    assert_eq!(at(&second), 1);
    queue(&mut scheduler, now, wanting(Some("a"), &[], now), "a");
    queue(&mut scheduler, now, wanting(Some("b"), &[], now), "b");
    scheduler.observe(now, id_of(&scheduler, 1, now), Observation::Models(vec![model("b")]));
    scheduler.release(now, second);
    let (who, second) = scheduler.next(now).expect("the second, behind one that it does not serve");
    assert_eq!((who, at(&second)), ("b", 1));
    assert!(scheduler.next(now).is_none());
    scheduler.release(now, first);
    let (who, first) = scheduler.next(now).expect("its turn");
    assert_eq!((who, at(&first)), ("a", 0));
    [first, second].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn forced_call_goes_where_it_may_without_room() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(1), &members(0..2), now);
    let ids = [0, 1].map(|name| id_of(&scheduler, name, now));
    let mut held: Vec<_> = (0..2).map(|_| admit(&mut scheduler, now, &call("a", now))).collect();
    for (name, id) in ids.into_iter().enumerate() {
        let (forced, said) = scheduler.force(now, &wanting(None, &[id], now));
        assert_eq!((at(&forced), said), (1 - name, Ok(crate::schedule::ForcedDecision::WouldWait)));
        held.push(forced);
    }
    ids.into_iter().for_each(|id| scheduler.observe(now, id, Observation::ConnectRefused));
    let (forced, _) = scheduler.force(now, &call("a", now));
    assert!(forced.placed().is_some(), "to one that is down, rather than nowhere");
    held.into_iter().chain([forced]).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
    let mut empty: Scheduler<()> = Scheduler::new(&of_slots(1), now);
    let (nowhere, _) = empty.force(now, &call("a", now));
    assert!(nowhere.placed().is_none());
    empty.release(now, nowhere);
}

#[test]
fn borrowed_slot_is_preempted_at_a_replica_that_the_owner_may_use() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..of_slots(1) };
    let vip = tidegate_config::TenantConfig { floor: 0.5, ..Default::default() };
    configured.tenants.insert("vip".into(), vip);
    let mut scheduler = in_front_of(&configured, &members(0..2), now);
    for (name, serves) in [(0, "large"), (1, "small")] {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let large = admit(&mut scheduler, now, &wanting(Some("large"), &[], now));
    let small = admit(&mut scheduler, now, &wanting(Some("small"), &[], now));
    queue(&mut scheduler, now, Ticket { tenant: "vip".into(), ..wanting(Some("large"), &[], now) }, "vip");
    assert_eq!(scheduler.preempt(now), Some(large.id), "not the youngest");
    scheduler.release(now, large);
    let (who, large) = scheduler.next(now).expect("the owner");
    assert_eq!(who, "vip");
    [large, small].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

#[test]
fn first_token_limit_applies_to_each_replica() {
    let now = epoch();
    let keys = tidegate_config::AdaptiveConfig { start: 8, awaiting: Some(1), ..Default::default() };
    let objective = Some(ms(500));
    let adaptive = adaptive::LimitSettings { max: 16, objective, latency: None, tpot: None, adaptive: keys };
    let settings = SchedulerSettings { adaptive: Some(adaptive), ..of_slots(16) };
    let mut scheduler = in_front_of(&settings, &members(0..2), now);
    let streaming = || Ticket { streams: true, ..call("a", now) };
    let mut held: Vec<_> = (0..2).map(|_| admit(&mut scheduler, now, &streaming())).collect();
    assert_ne!(at(&held[0]), at(&held[1]));
    let waits = queue(&mut scheduler, now, streaming(), ());
    assert_eq!(scheduler.explain(now, waits).expect("waits").rule, Rule::FirstTokens);
    let (now, free) = (now + ms(50), at(&held[1]));
    scheduler.on_first_token(now, &mut held[1]);
    let (_, grant) = scheduler.next(now).expect("one awaits no token");
    assert_eq!(at(&grant), free);
    let awaiting =
        |view: crate::placement::ReplicaView| view.slots?.adaptive.map(|found| found.limit.awaiting);
    assert_eq!(scheduler.replicas(now).into_iter().filter_map(awaiting).collect::<Vec<_>>(), [1, 1]);
    held.into_iter().chain([grant]).for_each(|grant| scheduler.release(now, grant));
    assert_empty(&scheduler, now);
}

/// Calls of five classes wait, and only the replica of the last class gets a free slot. The search
/// must not check each call.
#[test]
fn calls_waiting_for_other_replicas_are_not_looked_at() {
    let now = epoch();
    let mut scheduler = in_front_of(&of_slots(1), &members(0..5), now);
    let names = ["a", "b", "c", "d", "e"];
    for (name, serves) in names.into_iter().enumerate() {
        scheduler.observe(now, id_of(&scheduler, name, now), Observation::Models(vec![model(serves)]));
    }
    let mut held: Vec<_> =
        names.into_iter().map(|name| admit(&mut scheduler, now, &wanting(Some(name), &[], now))).collect();
    for k in 0..20_000 {
        let tenant = format!("tenant-{}", k % 500);
        let asked = Ticket { tenant: tenant.as_str().into(), ..wanting(Some(names[k % 4]), &[], now) };
        queue(&mut scheduler, now, asked, "other");
    }
    for k in 0..1_000 {
        let tenant = format!("tenant-{}", k % 500);
        let asked = Ticket { tenant: tenant.as_str().into(), ..wanting(Some("e"), &[], now) };
        queue(&mut scheduler, now, asked, "e");
    }
    for _ in 0..1_000 {
        let of_e = held.iter().position(|grant| at(grant) == 4).expect("there");
        scheduler.release(now, held.swap_remove(of_e));
        let (who, grant) = scheduler.next(now).expect("its own replica is free");
        assert_eq!((who, at(&grant)), ("e", 4));
        held.push(grant);
        assert!(scheduler.next(now).is_none());
    }
    held.into_iter().for_each(|grant| scheduler.release(now, grant));
}

/// Calls that fail again after an earlier failure do not make a replica ineligible. Enough first
/// failures of other calls do.
#[test]
fn call_that_failed_elsewhere_is_no_evidence_against_a_replica() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(4), &members(0..2), now);
    for attempt in 0..16 {
        let ticket = Ticket { has_failed: attempt >= 4, ..call("a", now) };
        let mut grant = admit(&mut scheduler, now, &ticket);
        assert_eq!(scheduler.on_replica_failure(now, &mut grant, Fault::Broke), RetryPath::Backoff);
        scheduler.release(now, grant);
        assert_eq!(scheduler.view(now).limit, 8, "after {attempt} more");
    }
    for _ in 0..8 {
        let mut grant = admit(&mut scheduler, now, &call("a", now));
        scheduler.on_replica_failure(now, &mut grant, Fault::Broke);
        scheduler.release(now, grant);
    }
    assert_eq!(scheduler.view(now).limit, 4, "but others are");
}

#[test]
fn half_open_probe_waits_in_proportion_to_the_last_rejection() {
    let sent = epoch();
    let mut scheduler = in_front_of(&of_slots(4), &members(0..1), sent);
    let mut grant = admit(&mut scheduler, sent, &call("a", sent));
    let now = sent + ms(30_000);
    scheduler.on_replica_failure(now, &mut grant, Fault::Full(None));
    scheduler.release(now, grant);
    for _ in 0..3 {
        queue(&mut scheduler, now, call("a", now), ());
    }
    let asks = scheduler.next_wake(now).expect("it is asked again");
    let (_, first) = scheduler.next(asks).expect("by one call");
    assert!(scheduler.next(asks + ms(119_999)).is_none(), "which it may still turn away");
    let taken_in = asks + ms(120_000);
    let (_, second) = scheduler.next(taken_in).expect("it was taken in, as it seems");
    [first, second].into_iter().for_each(|grant| scheduler.release(taken_in, grant));
}

#[test]
fn late_rejection_whose_delay_is_over_has_no_effect() {
    let sent = epoch();
    let mut scheduler: Scheduler<()> = in_front_of(&of_slots(4), &members(0..1), sent);
    let mut grants: Vec<_> = (0..3).map(|_| admit(&mut scheduler, sent, &call("a", sent))).collect();
    let limited = Fault::Limited(Some(ms(1_000)));
    let fail = |scheduler: &mut Scheduler<()>, now, mut grant: Box<Grant>, fault| {
        scheduler.on_replica_failure(now, &mut grant, fault);
        scheduler.release(now, grant);
    };
    fail(&mut scheduler, sent, grants.pop().expect("three"), limited);
    let now = sent + ms(2_000);
    let mut asks = admit(&mut scheduler, now, &call("a", now));
    scheduler.on_success(now, &mut asks);
    scheduler.release(now, asks);
    assert_eq!(scheduler.view(now).limit, 4);
    fail(&mut scheduler, now, grants.pop().expect("two"), limited);
    assert_eq!(scheduler.view(now).limit, 4, "it has been asked since");
    fail(&mut scheduler, now, grants.pop().expect("one"), Fault::Limited(Some(ms(3_000))));
    assert_eq!(scheduler.view(now).limit, 0);
    scheduler.tick(sent + ms(3_100));
    assert_eq!(scheduler.view(sent + ms(3_100)).limit, 1, "for what is left of it");
}
