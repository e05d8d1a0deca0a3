//! Tests that waiting calls are admitted or rejected at the right time by the timer task alone,
//! without the end of another call.

use std::pin::pin;

use super::*;
use crate::cooldown::Failure;
use crate::schedule::Rule;

#[tokio::test(start_paused = true)]
async fn wait_budget_expires_without_another_event() {
    let admission = admission(1);
    let _held = admission.acquire(ticket()).await.expect("free");
    let begin = now();
    let refused = admission.acquire(Ticket { wait: Some(ms(750)), ..ticket() }).await;
    assert_eq!(reason(refused), Reason::WaitBudget);
    assert!((750..=752).contains(&(now() - begin).as_millis()));
}

#[tokio::test(start_paused = true)]
async fn time_in_which_no_call_waits_is_no_gap() {
    let admission = admission(1);
    let held = admission.acquire(ticket()).await.expect("free");
    let mut second = pin!(admission.acquire(ticket()));
    assert!(poll_once(second.as_mut()).is_pending());
    drop(held);
    let second = second.await.expect("its slot");
    tokio::time::sleep(ms(10_000)).await;
    drop(second);
    assert_eq!(admission.view().gap, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn deadlines_expire_in_order_without_another_event() {
    let admission = admission(1);
    let _held = admission.acquire(ticket()).await.expect("free");
    let begin = now();
    let mut late = pin!(admission.acquire(Ticket { deadline: begin + ms(5_000), ..ticket() }));
    assert!(poll_once(late.as_mut()).is_pending());
    tokio::time::sleep(ms(10)).await;
    let refused = admission.acquire(Ticket { deadline: begin + ms(300), ..ticket() }).await;
    assert_eq!(reason(refused), Reason::Deadline);
    assert!((300..=302).contains(&(now() - begin).as_millis()));
    assert_eq!(reason(late.await), Reason::Deadline);
    assert!((5_000..=5_002).contains(&(now() - begin).as_millis()));
}

#[tokio::test(start_paused = true)]
async fn slot_polled_after_the_deadline_is_released() {
    let admission = admission(1);
    let held = admission.acquire(ticket()).await.expect("free");
    let mut late = pin!(admission.acquire(Ticket { deadline: now() + ms(20), ..ticket() }));
    assert!(poll_once(late.as_mut()).is_pending());
    // Granted in time, but the caller polls too late.
    drop(held);
    tokio::time::advance(ms(30)).await;
    let Poll::Ready(Err(error)) = poll_once(late.as_mut()) else { panic!("a slot for nobody") };
    assert_eq!(error.reason(), Some(Reason::Deadline));
    assert_eq!(error.why().map(|why| (why.rule, why.waited)), Some((Rule::Turn, ms(30))));
    assert_settled(&admission, 1).await;
}

#[tokio::test(start_paused = true)]
async fn end_of_a_cool_down_admits_the_next_call() {
    let admission = admission(4);
    let mut failed = admission.acquire(ticket()).await.expect("free");
    let begin = now();
    failed.on_failure(1, Failure::Other, Some(ms(2_000)), || None);
    drop(failed);
    let budget = Ticket { wait: Some(ms(100)), ..ticket() };
    let permit = admission.acquire(budget).await.expect("its budget stood still");
    let waited = (permit.admitted_at() - begin).as_millis();
    assert!((2_000..=2_230).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn cool_down_beyond_the_deadline_rejects_at_once() {
    let admission = admission(1);
    let mut held = admission.acquire(ticket()).await.expect("free");
    let begin = now();
    let mut waits = pin!(admission.acquire(Ticket { deadline: begin + ms(5_000), ..ticket() }));
    assert!(poll_once(waits.as_mut()).is_pending());
    held.on_failure(1, Failure::Other, Some(ms(60_000)), || None);
    assert_eq!(reason(waits.await), Reason::CoolDown);
    assert_eq!(now(), begin);
}

/// All slots are held when the cool-down ends, so a released slot admits the probe (the first
/// attempt after the cool-down). The probe does not end. Only the timer task can admit the next
/// call, so the release must start the timer task.
#[tokio::test(start_paused = true)]
async fn probe_admitted_by_a_release_is_timed() {
    let admission = admission(2);
    let mut first = admission.acquire(ticket()).await.expect("free");
    let second = admission.acquire(ticket()).await.expect("free");
    first.on_failure(1, Failure::Other, Some(ms(1_000)), || None);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let admission = admission.clone();
            tokio::spawn(async move {
                let permit = admission.acquire(ticket()).await.expect("a slot");
                tokio::time::sleep(ms(60_000)).await;
                permit.admitted_at()
            })
        })
        .collect();
    tokio::time::sleep(ms(3_000)).await;
    let begin = now();
    drop(first);
    drop(second);
    let mut admitted = Vec::new();
    for task in waiting {
        admitted.push((task.await.expect("no panic") - begin).as_millis());
    }
    assert_eq!(admitted[0], 0, "the probe");
    assert!(
        (1_000..=2_000).contains(&admitted[1]),
        "the probe hangs, is taken as accepted, and the ramp begins: {admitted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn drain_rejects_waiting_and_new_calls() {
    let admission = admission(1);
    let held = admission.acquire(ticket()).await.expect("free");
    let mut waits = pin!(admission.acquire(ticket()));
    assert!(poll_once(waits.as_mut()).is_pending());
    admission.drain();
    assert_eq!(reason(waits.await), Reason::Draining);
    assert_eq!(reason(admission.acquire(ticket()).await), Reason::Draining);
    assert_eq!(admission.view().in_flight, 1, "what is in flight goes on");
    drop(held);
    assert_eq!(admission.view().in_flight, 0);
}
