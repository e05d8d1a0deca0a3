//! Tests of which calls a prediction counts as ahead, and of which releases count for its pace.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::*;
use crate::budget::RateBudgets;
use crate::kv::Kv;
use crate::testing::epoch;
use tidegate_config::{Counting, RateConfig};
use tidegate_share::{Lease, LeaseTimes, LeaseUpdate};

/// A tenant with a cap of one slot has 60 waiting calls of a higher lane. At most one of them can
/// be dispatched before a call of another tenant.
#[test]
fn calls_beyond_the_cap_of_their_tenant_are_not_ahead() {
    let mut now = epoch();
    let mut configured = SchedulerSettings { predict: Predict::Deadline, ..settings(4) };
    named(&mut configured, "capped", 1.0, Some(1));
    let mut scheduler = Scheduler::new(&configured, now);
    let mut capped = admit(&mut scheduler, now, &ticket("capped", Lane::Interactive, now));
    for _ in 0..60 {
        queue(&mut scheduler, now, ticket("capped", Lane::Interactive, now), "capped");
    }
    let others = (0..3).map(|_| admit(&mut scheduler, now, &ticket("other", Lane::Standard, now)));
    let mut others: VecDeque<_> = others.collect();
    for _ in 0..40 {
        now += ms(333);
        let over = others.pop_front().expect("three calls are in flight");
        scheduler.release(now, over);
        others.push_back(admit(&mut scheduler, now, &ticket("other", Lane::Standard, now)));
    }
    let deadline = now + Duration::from_secs(5);
    let brief = Ticket { deadline, ..ticket("brief", Lane::Standard, now) };
    let asked = scheduler.try_admit(now, &brief);
    assert!(matches!(asked, Ok(None)), "the tenant is at its cap: {asked:?}");
    // Another tenant gets the slot of the tenant with the cap, whose line is ready then.
    queue(&mut scheduler, now, ticket("urgent", Lane::Interactive, now), "urgent");
    capped.sent = true;
    scheduler.release(now, capped);
    let (who, _urgent) = scheduler.next(now).expect("a slot is free");
    assert_eq!(who, "urgent");
    let asked = scheduler.try_admit(now, &brief);
    assert!(matches!(asked, Ok(None)), "the cap permits one of the calls: {asked:?}");
}

/// Twenty tenants have waiting calls. In fair queueing, a tenant that was idle goes next.
#[test]
fn call_of_an_idle_tenant_has_no_other_tenant_ahead() {
    let mut now = epoch();
    let configured = SchedulerSettings { predict: Predict::Deadline, ..settings(1) };
    let mut scheduler = Scheduler::new(&configured, now);
    let busy = |n: u32, now: Instant| {
        let cost = 1.0 + 0.013 * f64::from(n);
        Ticket { cost, ..ticket(&format!("busy {n}"), Lane::Standard, now) }
    };
    let mut held = admit(&mut scheduler, now, &busy(0, now));
    for n in 0..20 {
        for _ in 0..10 {
            scheduler.enqueue(now, busy(n, now), "busy");
        }
    }
    for _ in 0..60 {
        now += Duration::from_secs(1);
        held.sent = true;
        scheduler.release(now, held);
        held = scheduler.next(now).expect("calls wait").1;
    }
    let deadline = now + Duration::from_secs(5);
    queue(&mut scheduler, now, Ticket { deadline, ..ticket("idle", Lane::Standard, now) }, "idle");
    now += Duration::from_secs(1);
    held.sent = true;
    scheduler.release(now, held);
    assert_eq!(scheduler.next(now).map(|(who, _)| who), Some("idle"));
}

fn batch(now: Instant) -> Ticket {
    let mut ticket = ticket("batch", Lane::Batch, now);
    (ticket.demand.input, ticket.demand.exact) = (10_000, true);
    ticket
}

/// Queues `calls` calls of 10,000 tokens at a target with two slots and 60,000 tokens per minute,
/// and dispatches 40 of them, about one every twelve seconds. Each holds its slot for one second.
/// Returns the scheduler and the time, at which the tokens do not suffice for another call.
fn short_of_tokens(calls: usize, settings: &SchedulerSettings) -> (Scheduler<&'static str>, Instant) {
    let mut now = epoch();
    let rates = RateConfig { tpm: Some(60_000), counting: Counting::Actual, ..RateConfig::default() };
    let budgets = Arc::new(Mutex::new(RateBudgets::new(&rates, now)));
    let mut scheduler = Scheduler::with(settings, Resources { budgets, kv: None }, now);
    for _ in 0..calls {
        scheduler.enqueue(now, batch(now), "batch");
    }
    for _ in 0..40 {
        let mut grant = loop {
            match scheduler.next(now) {
                Some((_, grant)) => break grant,
                None => now = scheduler.next_wake(now).expect("calls wait").max(now + ms(1)),
            }
        };
        now += Duration::from_secs(1);
        grant.sent = true;
        scheduler.release(now, grant);
    }
    (scheduler, now)
}

#[test]
fn time_spent_waiting_for_tokens_is_not_the_pace_of_slots() {
    let configured = SchedulerSettings { predict: Predict::Deadline, ..settings(2) };
    let (mut scheduler, now) = short_of_tokens(40, &configured);
    let without_tokens = ticket("chat", Lane::Interactive, now);
    let _held = [0, 1].map(|_| admit(&mut scheduler, now, &without_tokens));
    queue(&mut scheduler, now, without_tokens.clone(), "chat");
    let brief = Ticket { deadline: now + Duration::from_secs(5), ..without_tokens };
    let asked = scheduler.try_admit(now, &brief);
    assert!(matches!(asked, Ok(None)), "no release of a full target was seen: {asked:?}");
}

#[test]
fn retry_after_at_a_target_short_of_tokens_follows_its_releases() {
    let configured = SchedulerSettings { queue: 2, ..settings(2) };
    let (mut scheduler, now) = short_of_tokens(42, &configured);
    let refusal = scheduler.try_admit(now, &batch(now)).expect_err("the queue is full");
    assert_eq!(refusal.reason, Reason::QueueFull);
    let delay = refusal.retry_after.expect("always said");
    assert!((Duration::from_secs(27)..Duration::from_secs(50)).contains(&delay), "three calls in {delay:?}");
}

/// This process may use one of two slots of a shared limit. Its calls release the slot every
/// second.
#[test]
fn pace_of_slots_is_known_while_other_processes_use_the_rest() {
    let mut now = epoch();
    let configured = SchedulerSettings { predict: Predict::Deadline, ..settings(2) };
    let mut scheduler = Scheduler::new(&configured, now);
    let mut lease = Lease::new(2, false, LeaseTimes::LOCAL);
    lease.on_update(now, LeaseUpdate { granted: 1, cap: 2, ..LeaseUpdate::default() });
    scheduler.share(lease, Lease::new(2, false, LeaseTimes::LOCAL));
    let mut held = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    for _ in 0..100 {
        queue(&mut scheduler, now, ticket("a", Lane::Standard, now), ());
    }
    for _ in 0..40 {
        now += Duration::from_secs(1);
        scheduler.release(now, held);
        held = scheduler.next(now).expect("calls wait").1;
    }
    let brief = Ticket { deadline: now + Duration::from_secs(5), ..ticket("a", Lane::Standard, now) };
    let refusal = scheduler.try_admit(now, &brief).expect_err("sixty calls are ahead");
    assert_eq!(refusal.reason, Reason::PredictedWait);
}

/// The memory of a single server has room, and no release of a slot was observed.
#[test]
fn wait_for_a_slot_that_nothing_predicts_is_not_expected_to_end_at_once() {
    let now = epoch();
    let resources = Resources { budgets: Arc::default(), kv: Some(Kv::new(10_000, 0.1)) };
    let mut configured = settings(2);
    named(&mut configured, "capped", 1.0, Some(1));
    let mut scheduler = Scheduler::with(&configured, resources, now);
    let running =
        ["capped", "a"].map(|tenant| admit(&mut scheduler, now, &ticket(tenant, Lane::Standard, now)));
    let full = queue(&mut scheduler, now, ticket("a", Lane::Standard, now), "full");
    let why = scheduler.explain(now, full).expect("it waits");
    assert_eq!((why.rule, why.expected), (Rule::Slots, None));
    let capped = queue(&mut scheduler, now, ticket("capped", Lane::Standard, now), "capped");
    let why = scheduler.explain(now, capped).expect("it waits");
    assert_eq!((why.rule, why.expected), (Rule::TenantCap, None));
    running.into_iter().for_each(|grant| scheduler.release(now, grant));
}
