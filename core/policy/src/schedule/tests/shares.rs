//! Tests of floors, borrowed slots and preemption, of the maximum queue lengths and shedding, and
//! of predicted waits.

use proptest::prelude::*;

use super::*;
use crate::cooldown::Failure;
use crate::testing::epoch;
use tidegate_config::LaneConfig;

fn floor(settings: &mut SchedulerSettings, tenant: &str, floor: f64) {
    settings.tenants.insert(tenant.into(), TenantConfig { floor, ..TenantConfig::default() });
}

#[expect(clippy::vec_box, reason = "grants are boxed where they are created")]
fn fill<W>(
    scheduler: &mut Scheduler<W>,
    now: Instant,
    tenant: &str,
    lane: Lane,
    slots: usize,
) -> Vec<Box<Grant>> {
    (0..slots).map(|_| admit(scheduler, now, &ticket(tenant, lane, now))).collect()
}

#[test]
fn unused_floor_is_borrowed_and_returned_as_calls_end() {
    let now = epoch();
    let mut configured = settings(10);
    floor(&mut configured, "vip", 0.35);
    let mut scheduler = Scheduler::new(&configured, now);
    let mut held = fill(&mut scheduler, now, "hog", Lane::Interactive, 10);
    for k in 0..20 {
        queue(&mut scheduler, now, ticket("hog", Lane::Interactive, now), ("hog", k));
        queue(&mut scheduler, now, ticket("vip", Lane::Batch, now), ("vip", k));
    }
    let served: Vec<_> = (0..5)
        .map(|_| {
            scheduler.release(now, held.remove(0));
            let ((who, _), grant) = scheduler.next(now).expect("work");
            held.push(grant);
            who
        })
        .collect();
    assert_eq!(served, ["vip", "vip", "vip", "hog", "hog"], "three slots of ten, though batch");
    assert_eq!(scheduler.view(now).tenants.iter().map(|t| t.floor).max(), Some(3));
}

#[test]
fn the_least_served_floor_is_served_first_and_tenants_before_lanes() {
    let now = epoch();
    let mut configured = settings(10);
    floor(&mut configured, "half", 0.4);
    floor(&mut configured, "fifth", 0.2);
    configured.lanes[Lane::Batch as usize] = LaneConfig { floor: 0.1, ..LaneConfig::default() };
    let mut scheduler = Scheduler::new(&configured, now);
    let held = fill(&mut scheduler, now, "hog", Lane::Interactive, 10);
    for k in 0..5 {
        for (who, lane) in [("x", Lane::Batch), ("half", Lane::Standard), ("fifth", Lane::Standard)] {
            queue(&mut scheduler, now, ticket(who, lane, now), (who, k));
        }
    }
    let mut kept = Vec::new();
    let served: Vec<_> = held
        .into_iter()
        .take(7)
        .map(|grant| {
            scheduler.release(now, grant);
            let ((who, _), grant) = scheduler.next(now).expect("work");
            kept.push(grant);
            who
        })
        .collect();
    // Floors in use: 0 of 4 and 0 of 2, then 1 of 4, then 1 of 2 and 2 of 4 in either order, and 3
    // of 4. The floor of the batch lane is last.
    assert_eq!(served[..2].iter().filter(|who| **who == "half").count(), 1);
    assert_eq!((served[2], served[5], served[6]), ("half", "half", "x"));
}

proptest! {
    /// A tenant without a floor is still served if the floors of other tenants, each of less than
    /// one slot, are rounded up and add up to more than all slots.
    #[test]
    fn rounded_up_floors_starve_no_tenant(limit in 1usize..4, floors in 1usize..6) {
        let now = epoch();
        let mut configured = settings(0);
        let names = ["a", "b", "c", "d", "e"];
        names.iter().take(floors).for_each(|name| floor(&mut configured, name, 0.05));
        let mut scheduler = Scheduler::new(&configured, now);
        for _ in 0..200 {
            for name in names.iter().take(floors).chain(&["none"]) {
                scheduler.enqueue(now, ticket(name, Lane::Standard, now), *name);
            }
        }
        scheduler.set_limit(limit);
        let mut held = std::collections::VecDeque::new();
        let mut none = 0;
        for _ in 0..100 {
            if held.len() == limit {
                held.pop_front().into_iter().for_each(|grant| scheduler.release(now, grant));
            }
            let (who, mut grant) = scheduler.next(now).expect("work");
            grant.sent = true;
            none += usize::from(who == "none");
            held.push_back(grant);
        }
        prop_assert!(none >= 100 / (2 * (floors + 2)), "{none}");
    }
}

/// A call that is dispatched because of reserved slots (a floor) must not advance virtual time to
/// its start tag, because a new tenant would then wait for all other tenants.
#[test]
fn floor_does_not_delay_newcomers() {
    let now = epoch();
    let mut configured = settings(0);
    floor(&mut configured, "vip", 0.5);
    let mut scheduler = Scheduler::new(&configured, now);
    for k in 0..2_000 {
        scheduler.enqueue(now, ticket("vip", Lane::Standard, now), ("vip", k));
        scheduler.enqueue(now, ticket("old", Lane::Standard, now), ("old", k));
    }
    scheduler.set_limit(10);
    let mut held = Vec::new();
    while let Some(((who, _), mut grant)) = scheduler.next(now) {
        grant.sent = true;
        held.push((who, grant));
    }
    // Calls of the floor's holder are short, so it is served far more often than by its turn.
    for _ in 0..500 {
        let short = held.iter().position(|(who, _)| *who == "vip").expect("five of ten");
        scheduler.release(now, held.swap_remove(short).1);
        let ((who, _), mut grant) = scheduler.next(now).expect("work");
        grant.sent = true;
        held.push((who, grant));
    }
    scheduler.enqueue(now, ticket("new", Lane::Standard, now), ("new", 0));
    let others = (0..20).position(|_| {
        let long = held.iter().position(|(who, _)| *who == "old").expect("five of ten");
        scheduler.release(now, held.swap_remove(long).1);
        let ((who, _), mut grant) = scheduler.next(now).expect("work");
        grant.sent = true;
        held.push((who, grant));
        who == "new"
    });
    assert!(others.is_some_and(|others| others <= 2), "{others:?}");
}

#[test]
fn youngest_borrower_without_an_answer_is_preempted() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..settings(4) };
    floor(&mut configured, "vip", 0.5);
    let mut scheduler = Scheduler::new(&configured, now);
    let mut held = fill(&mut scheduler, now, "hog", Lane::Standard, 4);
    assert_eq!(scheduler.preempt(now), None, "nobody wants it");
    queue(&mut scheduler, now, ticket("other", Lane::Standard, now), "other");
    assert_eq!(scheduler.preempt(now), None, "who has no floor calls nothing back");
    for _ in 0..3 {
        queue(&mut scheduler, now, ticket("vip", Lane::Standard, now), "vip");
    }
    scheduler.on_response_head(&mut held[3]);
    assert_eq!(scheduler.preempt(now), Some(held[2].id));
    assert_eq!(scheduler.preempt(now), Some(held[1].id));
    assert_eq!(scheduler.preempt(now), None, "its floor is two");
    let preempted = held.remove(2);
    let again = Ticket { queue_tag: Some(preempted.queue_tag()), ..ticket("hog", Lane::Standard, now) };
    scheduler.release(now, preempted);
    let (who, vip) = scheduler.next(now).expect("the holder");
    assert_eq!(who, "vip");
    queue(&mut scheduler, now, again, "again");
    assert_eq!(scheduler.preempt(now), None, "one is still on its way");
    // The call was answered before it could be cancelled, so another one is preempted instead.
    scheduler.on_response_head(&mut held[1]);
    assert_eq!(scheduler.preempt(now), Some(held[0].id));
    drop(vip);
}

/// Preempts calls until none may be preempted any more. Returns how many calls were preempted.
fn preempted<W>(scheduler: &mut Scheduler<W>, now: Instant) -> usize {
    std::iter::from_fn(|| scheduler.preempt(now)).count()
}

#[test]
fn one_waiting_call_preempts_one_call_for_both_of_its_floors() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..settings(4) };
    floor(&mut configured, "vip", 0.25);
    configured.lanes[Lane::Interactive as usize].floor = 0.5;
    let mut scheduler = Scheduler::new(&configured, now);
    let _held = fill(&mut scheduler, now, "hog", Lane::Batch, 4);
    queue(&mut scheduler, now, ticket("vip", Lane::Interactive, now), 1);
    assert_eq!(preempted(&mut scheduler, now), 1);
    queue(&mut scheduler, now, ticket("other", Lane::Interactive, now), 2);
    assert_eq!(preempted(&mut scheduler, now), 1, "the lane's floor is two");
    queue(&mut scheduler, now, ticket("vip", Lane::Interactive, now), 3);
    assert_eq!(preempted(&mut scheduler, now), 0, "both floors are served by two calls");
}

#[test]
fn call_blocked_by_its_tenants_cap_preempts_nothing() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..settings(4) };
    configured.lanes[Lane::Interactive as usize].floor = 0.75;
    named(&mut configured, "capped", 1.0, Some(1));
    let mut scheduler = Scheduler::new(&configured, now);
    let _held = fill(&mut scheduler, now, "hog", Lane::Batch, 4);
    for who in 0..5 {
        queue(&mut scheduler, now, ticket("capped", Lane::Interactive, now), who);
    }
    assert_eq!(preempted(&mut scheduler, now), 1);
}

#[test]
fn lowered_limit_preempts_nothing() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..settings(4) };
    floor(&mut configured, "vip", 0.5);
    let mut scheduler = Scheduler::new(&configured, now);
    let mut held = fill(&mut scheduler, now, "hog", Lane::Standard, 4);
    queue(&mut scheduler, now, ticket("vip", Lane::Standard, now), ());
    scheduler.set_limit(2);
    for _ in 0..2 {
        assert_eq!(preempted(&mut scheduler, now), 0, "a slot that comes free is gone");
        scheduler.release(now, held.remove(0));
    }
    assert_eq!(preempted(&mut scheduler, now), 1);
}

/// The only slot is reserved for one of two tenants (its floor). The other tenant still gets a
/// third of the dispatches or more.
#[test]
fn preemption_does_not_block_others_from_the_last_slot() {
    let mut now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..settings(1) };
    floor(&mut configured, "vip", 0.5);
    let mut scheduler = Scheduler::new(&configured, now);
    let mut grant = admit(&mut scheduler, now, &ticket("vip", Lane::Standard, now));
    let mut who = "vip";
    for _ in 0..20 {
        queue(&mut scheduler, now, ticket("vip", Lane::Standard, now), "vip");
        queue(&mut scheduler, now, ticket("other", Lane::Standard, now), "other");
    }
    let mut answered = Vec::new();
    for _ in 0..20 {
        grant.sent = true;
        if scheduler.preempt(now) == Some(grant.id) {
            let again = Ticket { queue_tag: Some(grant.queue_tag()), ..ticket(who, Lane::Standard, now) };
            scheduler.release(now, grant);
            scheduler.enqueue(now, again, who);
        } else {
            now += ms(1_000);
            answered.push(who);
            scheduler.release(now, grant);
        }
        (who, grant) = scheduler.next(now).expect("both wait");
    }
    let others = answered.iter().filter(|who| **who == "other").count();
    assert!(others >= answered.len() / 3, "{answered:?}");
}

#[test]
fn borrower_keeps_its_own_floor() {
    let now = epoch();
    let mut configured = SchedulerSettings { reclaim: true, ..settings(4) };
    floor(&mut configured, "hog", 0.5);
    floor(&mut configured, "vip", 0.5);
    configured.lanes[Lane::Interactive as usize].floor = 0.5;
    let mut scheduler = Scheduler::new(&configured, now);
    let _held = fill(&mut scheduler, now, "hog", Lane::Batch, 4);
    for who in 0..2 {
        queue(&mut scheduler, now, ticket("vip", Lane::Standard, now), who);
        queue(&mut scheduler, now, ticket("other", Lane::Interactive, now), who);
    }
    assert_eq!(preempted(&mut scheduler, now), 2, "four are owed, and two were borrowed");
}

#[test]
fn nothing_is_preempted_unless_configured() {
    let now = epoch();
    let mut configured = settings(1);
    floor(&mut configured, "vip", 0.5);
    let mut scheduler = Scheduler::new(&configured, now);
    let _held = fill(&mut scheduler, now, "hog", Lane::Standard, 1);
    queue(&mut scheduler, now, ticket("vip", Lane::Standard, now), ());
    assert_eq!(scheduler.preempt(now), None);
}

/// Queues a new call of the tenant and the lane. Returns the waiting call that is shed for it, or
/// `None` if no call is shed.
fn displaced(
    scheduler: &mut Scheduler<&'static str>,
    now: Instant,
    tenant: &str,
    lane: Lane,
) -> Option<&'static str> {
    queue(scheduler, now, ticket(tenant, lane, now), "new");
    let mut shed = scheduler.expired(now);
    assert!(shed.iter().all(|(_, refusal)| refusal.reason == Reason::Shed && refusal.why.is_some()));
    shed.pop().map(|(who, _)| who)
}

#[test]
fn youngest_call_of_the_longest_line_of_the_lowest_lane_is_shed() {
    let now = epoch();
    let mut configured = SchedulerSettings { backlog: 6, ..settings(0) };
    configured.tenants.insert("exempt".into(), TenantConfig { shed: false, ..TenantConfig::default() });
    let mut scheduler = Scheduler::new(&configured, now);
    let retry = Some(Default::default());
    for (k, (tenant, lane, who)) in [
        ("exempt", Lane::Batch, "exempt"),
        ("a", Lane::Standard, "a standard"),
        ("b", Lane::Batch, "b batch"),
        ("a", Lane::Batch, "a batch 1"),
        ("a", Lane::Batch, "a batch 2"),
    ]
    .into_iter()
    .enumerate()
    {
        queue(&mut scheduler, now + ms(k as u64), ticket(tenant, lane, now + ms(k as u64)), who);
    }
    queue(
        &mut scheduler,
        now,
        Ticket { queue_tag: retry, ..ticket("a", Lane::Batch, now + ms(9)) },
        "a retry",
    );
    let batch = scheduler.try_admit(now, &ticket("c", Lane::Batch, now)).expect_err("nobody is below it");
    assert_eq!(batch.reason, Reason::QueueFull);
    assert_eq!(displaced(&mut scheduler, now, "c", Lane::Standard), Some("a batch 2"));
    let last = displaced(&mut scheduler, now, "c", Lane::Interactive);
    assert!(last == Some("a batch 1") || last == Some("b batch"), "{last:?}");
    assert!(displaced(&mut scheduler, now, "c", Lane::Interactive).is_some());
    // Only a retry and an exempt call are left in the batch lane.
    assert!(matches!(displaced(&mut scheduler, now, "c", Lane::Interactive), Some("new" | "a standard")));
    assert!(displaced(&mut scheduler, now, "c", Lane::Interactive).is_some());
    let full = scheduler.try_admit(now, &ticket("c", Lane::Interactive, now)).expect_err("nothing to shed");
    assert_eq!(full.reason, Reason::QueueFull);
    assert_eq!(scheduler.view(now).waiting, 6);
}

#[test]
fn queue_bounds_apply_independently() {
    let now = epoch();
    let mut configured = SchedulerSettings { queue: 2, ..settings(0) };
    configured.lanes[Lane::Batch as usize] = LaneConfig { queue: Some(3), ..LaneConfig::default() };
    let mut scheduler = Scheduler::new(&configured, now);
    queue(&mut scheduler, now, ticket("a", Lane::Batch, now), "a batch");
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), "a standard");
    assert_eq!(displaced(&mut scheduler, now, "a", Lane::Interactive), Some("a batch"), "of its own tenant");
    for tenant in ["b", "c", "d"] {
        queue(&mut scheduler, now, ticket(tenant, Lane::Batch, now), tenant);
    }
    let full = scheduler.try_admit(now, &ticket("e", Lane::Batch, now)).expect_err("the lane is full");
    assert_eq!(full.reason, Reason::QueueFull);
    queue(&mut scheduler, now, ticket("e", Lane::Standard, now), "e");
}

/// One slot is released per second, and the calls ahead in the queue take longer than the deadline
/// of a new call permits.
#[test]
fn call_with_a_predicted_wait_that_is_too_long_is_refused() {
    let mut now = epoch();
    let configured = SchedulerSettings { predict: Predict::Deadline, ..settings(1) };
    let mut scheduler = Scheduler::new(&configured, now);
    let hopeless =
        |now| Ticket { deadline: now + Duration::from_secs(20), ..ticket("b", Lane::Standard, now) };
    let mut held = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    for k in 0..100 {
        queue(&mut scheduler, now, ticket("a", Lane::Interactive, now), k);
    }
    assert!(matches!(scheduler.try_admit(now, &hopeless(now)), Ok(None)), "nothing is known yet");
    for _ in 0..40 {
        now += Duration::from_secs(1);
        scheduler.release(now, held);
        held = scheduler.next(now).expect("work").1;
    }
    let refusal = scheduler.try_admit(now, &hopeless(now)).expect_err("sixty are ahead");
    let expected = refusal.why.and_then(|why| why.expected).expect("foretold");
    assert_eq!(refusal.reason, Reason::PredictedWait);
    assert!(expected > Duration::from_secs(45) && expected < Duration::from_secs(62), "{expected:?}");
    assert!(refusal.retry_after > Some(Duration::from_secs(20)));
    let patient = Ticket { deadline: now + Duration::from_secs(90), ..hopeless(now) };
    assert!(matches!(scheduler.try_admit(now, &patient), Ok(None)));
    let urgent = Ticket { lane: Lane::Interactive, ..hopeless(now) };
    assert!(matches!(scheduler.try_admit(now, &urgent), Ok(None)), "its share comes at once");
    let retry = Ticket { queue_tag: Some(held.queue_tag()), ..hopeless(now) };
    assert!(matches!(scheduler.try_admit(now, &retry), Ok(None)), "a retry may wait");
    // The end of a cool-down is not predicted.
    scheduler.on_failure(now, &mut held, 1, Failure::Other, Some(Duration::from_secs(5)), 0.0);
    assert!(matches!(scheduler.try_admit(now, &hopeless(now)), Ok(None)), "nothing is foretold meanwhile");
    scheduler.release(now, held);
}

#[test]
fn call_that_would_miss_its_objective_is_refused_if_configured() {
    for (predict, refused) in [(Predict::Objective, true), (Predict::Deadline, false), (Predict::Off, false)]
    {
        let mut now = epoch();
        let mut configured = SchedulerSettings { predict, ..settings(1) };
        configured.lanes[Lane::Standard as usize].ttft = Some(Duration::from_secs(5));
        let mut scheduler = Scheduler::new(&configured, now);
        let mut held = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
        for k in 0..80 {
            scheduler.enqueue(now, ticket("a", Lane::Standard, now), k);
        }
        for _ in 0..40 {
            now += Duration::from_secs(1);
            scheduler.release(now, held);
            held = scheduler.next(now).expect("work").1;
        }
        let asked = scheduler.try_admit(now, &ticket("a", Lane::Standard, now));
        assert_eq!(asked.err().map(|refusal| refusal.reason), refused.then_some(Reason::PredictedWait));
        scheduler.release(now, held);
    }
}

/// Slots that are released while no call waits show how fast calls arrive, not how fast the target
/// could serve them, so no wait is predicted from them.
#[test]
fn idle_target_predicts_nothing() {
    let mut now = epoch();
    let mut scheduler: Scheduler<()> =
        Scheduler::new(&SchedulerSettings { predict: Predict::Deadline, ..settings(1) }, now);
    for _ in 0..100 {
        now += Duration::from_secs(60);
        let grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
        now += ms(10);
        scheduler.release(now, grant);
    }
    let grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    let brief = Ticket { deadline: now + Duration::from_secs(1), ..ticket("a", Lane::Standard, now) };
    assert!(matches!(scheduler.try_admit(now, &brief), Ok(None)));
    scheduler.release(now, grant);
}

/// Tries to admit a call at a full scheduler, and returns the `retry_after` of the refusal.
fn hint<W>(scheduler: &mut Scheduler<W>, now: Instant) -> Duration {
    let refusal = scheduler.try_admit(now, &ticket("b", Lane::Standard, now)).expect_err("it is full");
    refusal.retry_after.expect("always said")
}

#[test]
fn idle_time_does_not_count_for_the_pace() {
    let mut now = epoch();
    let mut scheduler: Scheduler<u8> = Scheduler::new(&SchedulerSettings { queue: 2, ..settings(1) }, now);
    for day in 0..3 {
        let mut held = admit(&mut scheduler, now, &ticket("b", Lane::Standard, now));
        for who in 0..2 {
            queue(&mut scheduler, now, ticket("b", Lane::Standard, now), who);
        }
        for _ in 0..20 {
            let told = hint(&mut scheduler, now);
            let (least, most) = if day == 0 { (ms(1_000), ms(3_000)) } else { (ms(1_000), ms(1_000)) };
            assert!((least..=most).contains(&told), "day {day}: {told:?}");
            now += ms(100);
            scheduler.release(now, held);
            held = scheduler.next(now).expect("two wait").1;
            scheduler.enqueue(now, ticket("b", Lane::Standard, now), 0);
        }
        for _ in 0..2 {
            now += ms(100);
            scheduler.release(now, held);
            held = scheduler.next(now).expect("one waits").1;
        }
        scheduler.release(now, held);
        now += Duration::from_secs(8 * 3600);
    }
}

#[test]
fn calls_waiting_for_their_tenants_cap_do_not_count_for_the_pace() {
    let mut now = epoch();
    let mut configured = SchedulerSettings { predict: Predict::Deadline, ..settings(4) };
    named(&mut configured, "capped", 1.0, Some(1));
    let mut scheduler = Scheduler::new(&configured, now);
    let mut held = admit(&mut scheduler, now, &ticket("capped", Lane::Standard, now));
    for who in 0..60 {
        queue(&mut scheduler, now, ticket("capped", Lane::Standard, now), who);
    }
    for _ in 0..50 {
        now += Duration::from_secs(60);
        scheduler.release(now, held);
        held = scheduler.next(now).expect("the capped tenant has calls").1;
    }
    let _others = fill(&mut scheduler, now, "other", Lane::Standard, 3);
    for who in 0..5 {
        queue(&mut scheduler, now, ticket("other", Lane::Standard, now), who);
    }
    let brief = Ticket { deadline: now + Duration::from_secs(20), ..ticket("other", Lane::Standard, now) };
    let asked = scheduler.try_admit(now, &brief);
    assert!(matches!(asked, Ok(None)), "three of four slots had no call to wait for: {asked:?}");
}

#[test]
fn target_without_a_queue_reports_the_pace_of_its_full_slots() {
    let mut now = epoch();
    let configured = SchedulerSettings { on_full: OnFull::Refuse, ..settings(1) };
    let mut scheduler: Scheduler<()> = Scheduler::new(&configured, now);
    for known in [ms(1_000), ms(20_000), ms(20_000)] {
        let held = admit(&mut scheduler, now, &ticket("b", Lane::Standard, now));
        assert_eq!(hint(&mut scheduler, now), known);
        now += ms(20_000);
        scheduler.release(now, held);
        now += Duration::from_secs(3600);
    }
}

#[test]
fn explanation_says_how_long_a_rule_has_applied() {
    let now = epoch();
    let mut configured = settings(2);
    named(&mut configured, "a", 1.0, Some(1));
    let mut scheduler = Scheduler::new(&configured, now);
    let first = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    let capped = queue(&mut scheduler, now + ms(100), ticket("a", Lane::Standard, now + ms(100)), ());
    let second = admit(&mut scheduler, now + ms(200), &ticket("b", Lane::Standard, now));
    let full = queue(&mut scheduler, now + ms(300), ticket("b", Lane::Standard, now + ms(100)), ());
    let of = |why: Option<WaitExplanation>| why.map(|why| (why.rule, why.since, why.waited));
    let at = now + ms(1_000);
    assert_eq!(of(scheduler.explain(at, capped)), Some((Rule::TenantCap, ms(900), ms(900))));
    assert_eq!(of(scheduler.explain(at, full)), Some((Rule::Slots, ms(800), ms(900))));
    // A slot that is handed on at once was never free.
    scheduler.release(at, second);
    let (_, second) = scheduler.next(at).expect("b's");
    let third = queue(&mut scheduler, at, ticket("b", Lane::Standard, now), ());
    assert_eq!(of(scheduler.explain(at, third)), Some((Rule::Slots, ms(800), ms(1_000))));
    scheduler.release(at, first);
    scheduler.release(at, second);
    assert_eq!(scheduler.explain(at, full), None, "it went");
}
