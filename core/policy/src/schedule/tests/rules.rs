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
    let refused = scheduler.try_admit(now, &late).expect_err("made too late");
    assert_eq!((refused.reason, refused.retry_after, refused.why), (Reason::Deadline, None, None));
    let overdue = Ticket { deadline: now + ms(1), ..ticket("a", Lane::Standard, now) };
    let refused = scheduler.try_admit(now + ms(1), &overdue).expect_err("made in time");
    assert_eq!((refused.reason, refused.why.is_some()), (Reason::Deadline, true));
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

/// The provider asks callers to wait for 10 s. A call may wait for 1 s, and another one for 20 s.
#[test]
fn closed_time_counts_for_the_wait_budget_of_calls_that_fall_back() {
    for has_fallback in [false, true] {
        let now = epoch();
        let configured = SchedulerSettings { has_fallback, ..settings(1) };
        let mut scheduler = Scheduler::new(&configured, now);
        let patient = |wait: u64, now| Ticket { wait: Some(ms(wait)), ..ticket("a", Lane::Standard, now) };
        let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
        queue(&mut scheduler, now, patient(1_000, now), 1);
        queue(&mut scheduler, now, patient(20_000, now), 20);
        let failed = now + ms(300);
        scheduler.on_failure(failed, &mut grant, 1, Failure::Limited, Some(ms(10_000)), 0.0);
        scheduler.release(failed, grant);
        let refused = scheduler.expired(failed).into_iter();
        let refused: Vec<_> =
            refused.map(|(who, refusal)| (who, refusal.reason, refusal.retry_after)).collect();
        let expected = (1, Reason::CoolDown, Some(ms(10_000)));
        assert_eq!(refused, if has_fallback { vec![expected] } else { vec![] });
        let new = scheduler.try_admit(failed, &patient(1_000, failed)).err();
        assert_eq!(new.map(|refusal| refusal.reason), has_fallback.then_some(Reason::CoolDown));
        let reopened = failed + ms(10_000);
        let (who, probe) = scheduler.next(reopened).expect("the probe");
        assert_eq!((who, probe.used_wait), if has_fallback { (20, ms(10_300)) } else { (1, ms(300)) });
        scheduler.release(reopened, probe);
    }
}

/// Returns the scheduler of a target that has four slots and a fallback, and is in an outage.
fn in_outage_with_fallback<W>(now: Instant) -> Scheduler<W> {
    let configured = SchedulerSettings { has_fallback: true, ..settings(4) };
    let mut scheduler = Scheduler::new(&configured, now);
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    scheduler.on_success(now, &mut grant);
    scheduler.release(now, grant);
    for call in 0..3 {
        let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
        scheduler.on_failure(now, &mut grant, call, Failure::Unread { worth_waiting: false }, None, 0.0);
        scheduler.release(now, grant);
    }
    scheduler
}

/// A call may wait for 500 ms. The next probe of the target is sent earlier, but is not answered.
#[test]
fn call_that_falls_back_waits_for_its_budget_in_an_outage() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = in_outage_with_fallback(now);
    let patient = |wait: u64, now| Ticket { wait: Some(ms(wait)), ..ticket("a", Lane::Standard, now) };
    let refused = scheduler.try_admit(now, &patient(100, now)).expect_err("probed too late");
    assert_eq!((refused.reason, refused.retry_after), (Reason::Outage, Some(ms(250))));
    queue(&mut scheduler, now, patient(500, now), ());
    let probed = now + ms(250);
    let (_, probe) = scheduler.next(probed).expect("the probe");
    queue(&mut scheduler, probed, patient(500, probed), ());
    assert_eq!(scheduler.next_wake(probed), Some(probed + ms(500)));
    let refused = scheduler.expired(probed + ms(500));
    assert_eq!(refused.iter().map(|(_, refusal)| refusal.reason).collect::<Vec<_>>(), [Reason::Outage]);
    scheduler.release(probed + ms(500), probe);
}

/// The probe of the target is not answered. One call may wait longer than its client, and the other
/// as long.
#[test]
fn client_timeout_ends_the_wait_of_a_call_that_falls_back_in_an_outage() {
    let now = epoch();
    let mut scheduler: Scheduler<u64> = in_outage_with_fallback(now);
    let probed = now + ms(250);
    let probe = admit(&mut scheduler, probed, &ticket("a", Lane::Standard, probed));
    for wait in [500, 300] {
        let client_timeout = Some(probed + ms(300));
        let call = ticket("a", Lane::Standard, probed);
        queue(&mut scheduler, probed, Ticket { wait: Some(ms(wait)), client_timeout, ..call }, wait);
    }
    let ends = probed + ms(300);
    assert_eq!(scheduler.next_wake(probed), Some(ends));
    let refused = scheduler.expired(ends).into_iter();
    let refused: Vec<_> = refused.map(|(who, refusal)| (who, refusal.reason)).collect();
    assert_eq!(refused, [(500, Reason::ClientTimeout), (300, Reason::ClientTimeout)]);
    scheduler.release(ends, probe);
}

#[test]
fn retry_that_can_fall_back_is_not_queued_by_a_target_that_refuses_calls() {
    for has_fallback in [false, true] {
        let now = epoch();
        let configured = SchedulerSettings { on_full: OnFull::Refuse, has_fallback, ..settings(1) };
        let mut scheduler: Scheduler<()> = Scheduler::new(&configured, now);
        let held = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
        let retry = Ticket { queue_tag: Some(held.queue_tag()), ..ticket("a", Lane::Standard, now) };
        let refused = scheduler.try_admit(now, &retry).err();
        assert_eq!(refused.map(|refusal| refusal.reason), has_fallback.then_some(Reason::NoSlot));
        scheduler.release(now, held);
    }
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
    let retry = Ticket { queue_tag: Some(grant.queue_tag()), ..ticket("a", Lane::Standard, now - ms(10)) };
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
    assert_eq!(grant.used_wait, Duration::ZERO);
    queue(&mut scheduler, now, ticket("a", Lane::Standard, now), ());
    let failed = now + ms(300);
    scheduler.on_failure(failed, &mut grant, 1, Failure::Other, Some(ms(1000)), 0.0);
    scheduler.release(failed, grant);
    assert!(scheduler.next(failed).is_none());
    let (_, mut probe) = scheduler.next(failed + ms(1000)).expect("the probe");
    assert_eq!(probe.used_wait, ms(300));
    queue(&mut scheduler, failed + ms(1000), ticket("a", Lane::Standard, now), ());
    scheduler.on_success(failed + ms(1500), &mut probe);
    scheduler.release(failed + ms(5500), probe);
    let (_, grant) = scheduler.next(failed + ms(5500)).expect("open again");
    assert_eq!(grant.used_wait, ms(4000), "from when the probe was answered");
    scheduler.release(failed + ms(5500), grant);
}
