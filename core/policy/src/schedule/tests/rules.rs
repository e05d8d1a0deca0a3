//! Tests of single rules of the scheduler, and of regressions that the property tests do not cover
//! explicitly.

use super::*;
use crate::cooldown::Failure;
use crate::testing::epoch;

/// Dispatches the admissible calls one after the other, releasing each slot at once. Returns the
/// calls in dispatch order.
fn draw<W>(scheduler: &mut Scheduler<W>, now: Instant) -> Vec<W> {
    let mut drawn = Vec::new();
    while let Some((who, mut grant)) = scheduler.next(now) {
        grant.sent = true;
        scheduler.release(now, grant);
        drawn.push(who);
    }
    drawn
}

#[test]
fn call_past_its_deadline_is_refused_although_a_slot_is_free() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = Scheduler::new(&settings(1), now);
    let late = Ticket { deadline: now, ..ticket("a", Lane::Standard, now) };
    assert_eq!(scheduler.try_admit(now, &late).expect_err("too late").reason, Reason::Deadline);
}

#[test]
fn a_cool_down_that_is_over_is_no_reason_to_refuse() {
    let now = epoch();
    let mut scheduler: Scheduler<()> =
        Scheduler::new(&SchedulerSettings { on_full: OnFull::Refuse, ..settings(1) }, now);
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    scheduler.on_failure(now, &mut grant, 1, Failure::Other, Some(ms(1000)), 0.0);
    let refused = |scheduler: &mut Scheduler<()>, now| {
        scheduler.try_admit(now, &ticket("a", Lane::Standard, now)).expect_err("full")
    };
    let cooling = refused(&mut scheduler, now + ms(400));
    assert_eq!((cooling.reason, cooling.retry_after), (Reason::CoolDown, Some(ms(600))));
    assert_eq!(refused(&mut scheduler, now + ms(1500)).reason, Reason::NoSlot);
    scheduler.release(now, grant);
}

#[test]
fn queue_bound_does_not_apply_to_retries() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&SchedulerSettings { queue: 1, ..settings(1) }, now);
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    grant.sent = true;
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), 1);
    let full = scheduler.try_admit(now, &ticket("a", Lane::Standard, now)).expect_err("full");
    assert_eq!((full.reason, full.position), (Reason::QueueFull, 1));
    queue(&mut scheduler, now, ticket("b", Lane::Standard, now), 2);
    let retry = Ticket { charged: Some(grant.charged()), ..ticket("a", Lane::Standard, now - ms(10)) };
    queue(&mut scheduler, now, retry, 3);
    scheduler.release(now, grant);
    assert_eq!(draw(&mut scheduler, now), [3, 2, 1], "the retry first, by its age; then by turns");
}

#[test]
fn a_forced_call_counts_against_its_tenants_cap() {
    let now = epoch();
    let mut configured = settings(2);
    named(&mut configured, "a", 1.0, Some(1));
    let mut scheduler = Scheduler::new(&configured, now);
    let other = [(); 2].map(|()| admit(&mut scheduler, now, &ticket("b", Lane::Standard, now)));
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), 1);
    let (forced, said) = scheduler.force(now, &ticket("a", Lane::Standard, now));
    assert_eq!(said, Ok(ForcedDecision::WouldWait));
    other.into_iter().for_each(|grant| scheduler.release(now, grant));
    assert!(scheduler.next(now).is_none(), "the cap is full");
    scheduler.release(now, forced);
    assert_eq!(draw(&mut scheduler, now), [1]);
}

/// A probe that ends without a reported result counts as neither accepted nor failed, and another
/// probe follows.
#[test]
fn probe_without_a_result_is_followed_by_another() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(2), now);
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    scheduler.on_failure(now, &mut grant, 1, Failure::Other, Some(ms(1000)), 0.0);
    scheduler.release(now, grant);
    for k in 0..3 {
        queue(&mut scheduler, now, ticket("a", Lane::Standard, now), k);
    }
    let now = now + ms(1000);
    for k in 0..3 {
        let (who, probe) = scheduler.next(now).expect("a probe");
        assert_eq!(who, k);
        assert!(scheduler.next(now).is_none(), "one at a time");
        scheduler.release(now, probe);
    }
}

#[test]
fn event_that_became_due_since_the_last_call_is_due_now() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(2), now);
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    scheduler.on_failure(now, &mut grant, 1, Failure::Other, Some(ms(1000)), 0.0);
    scheduler.release(now, grant);
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), 1);
    assert!(scheduler.next(now + ms(999)).is_none());
    let later = now + ms(1001);
    assert_eq!(scheduler.next_wake(later), Some(later));
    assert_eq!(draw(&mut scheduler, later), [1]);
}

#[test]
fn endless_wait_does_not_overflow() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(0), now);
    let patient = Ticket { wait: Some(Duration::MAX), ..ticket("a", Lane::Standard, now) };
    let deadline = patient.deadline;
    queue(&mut scheduler, now, patient, ());
    assert_eq!(scheduler.next_wake(now + ms(5)), Some(deadline));
}

/// Refuses 20,000 calls from the youngest on: the work of counting positions must not be quadratic.
#[test]
fn cost_of_refusing_a_call_does_not_grow_with_the_queue() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(0), now);
    let calls = 20_000;
    for k in 0..calls {
        let deadline = now + Duration::from_secs(1000 + calls - k);
        queue(&mut scheduler, now, Ticket { deadline, ..ticket("a", Lane::Standard, now + ms(k)) }, k);
    }
    scheduler.drain();
    let refused = scheduler.expired(now);
    assert!(
        refused.iter().all(|(_, refusal)| refusal.reason == Reason::Draining && refusal.position <= 1000)
    );
    assert_eq!(refused.first().map(|(who, _)| *who), Some(calls - 1));
    assert_eq!(refused.len() as u64, calls);
    assert!(!scheduler.has_waiting());
}

#[test]
fn a_driver_that_does_not_ask_after_a_release_leaves_a_gap() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(1), now);
    let grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), 1);
    scheduler.release(now, grant);
    assert_eq!(draw(&mut scheduler, now + ms(250)), [1]);
    assert_eq!(scheduler.view(now + ms(250)).gap, ms(250));
}

/// If several calls expire together, the position of each is counted before any of them is removed,
/// in whatever order they are removed.
#[test]
fn calls_that_expire_together_keep_their_positions() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(0), now);
    let minute = Duration::from_secs(60);
    for (k, (tenant, patience)) in [("a", 9), ("b", 1), ("a", 3), ("a", 99), ("a", 5)].into_iter().enumerate()
    {
        let asked = Ticket { deadline: now + minute * patience, ..ticket(tenant, Lane::Standard, now) };
        queue(&mut scheduler, now, asked, k);
    }
    let mut left: Vec<_> = scheduler
        .expired(now + minute * 9)
        .into_iter()
        .map(|(who, refusal)| (who, refusal.position))
        .collect();
    left.sort_unstable();
    assert_eq!(left, [(0, 0), (1, 0), (2, 1), (4, 3)]);
    assert_eq!(scheduler.expired(now + minute * 99).into_iter().map(|(who, _)| who).collect::<Vec<_>>(), [3]);
}

#[test]
fn wait_budget_used_excludes_cool_downs() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(1), now);
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    assert_eq!(grant.spent, Duration::ZERO);
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), ());
    let failed = now + ms(300);
    scheduler.on_failure(failed, &mut grant, 1, Failure::Other, Some(ms(1000)), 0.0);
    scheduler.release(failed, grant);
    assert!(scheduler.next(failed).is_none());
    let (_, mut probe) = scheduler.next(failed + ms(1000)).expect("the probe");
    assert_eq!(probe.spent, ms(300));
    queue(&mut scheduler, failed + ms(1000), ticket("a", Lane::Standard, now), ());
    scheduler.on_success(failed + ms(1500), &mut probe);
    scheduler.release(failed + ms(5500), probe);
    let (_, grant) = scheduler.next(failed + ms(5500)).expect("open again");
    assert_eq!(grant.spent, ms(4000), "from when the probe was answered");
    scheduler.release(failed + ms(5500), grant);
}
