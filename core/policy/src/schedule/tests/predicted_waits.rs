//! Tests of which calls a prediction counts as ahead, and of which releases count for its pace.

use std::collections::VecDeque;

use super::*;
use crate::testing::epoch;

/// A tenant with a cap of one slot has 60 waiting calls of a higher lane. At most one of them can be
/// dispatched before a call of another tenant.
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
