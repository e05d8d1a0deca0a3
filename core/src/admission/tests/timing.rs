//! Waiting calls are answered in time though nothing else happens.

use std::pin::pin;

use super::*;
use crate::cooldown::Failure;
use crate::schedule::Rule;

#[tokio::test(start_paused = true)]
async fn a_wait_budget_ends_by_itself() {
    let door = door(1);
    let _held = door.acquire(ticket()).await.expect("free");
    let begin = now();
    let refused = door.acquire(Ticket { wait: Some(ms(750)), ..ticket() }).await;
    assert_eq!(reason(refused), Reason::WaitBudget);
    assert!((750..=752).contains(&(now() - begin).as_millis()));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_by_itself_and_an_earlier_one_first() {
    let door = door(1);
    let _held = door.acquire(ticket()).await.expect("free");
    let begin = now();
    let mut late = pin!(door.acquire(Ticket { deadline: begin + ms(5_000), ..ticket() }));
    assert!(poll_once(late.as_mut()).is_pending());
    tokio::time::sleep(ms(10)).await;
    let refused = door.acquire(Ticket { deadline: begin + ms(300), ..ticket() }).await;
    assert_eq!(reason(refused), Reason::Deadline);
    assert!((300..=302).contains(&(now() - begin).as_millis()));
    assert_eq!(reason(late.await), Reason::Deadline);
    assert!((5_000..=5_002).contains(&(now() - begin).as_millis()));
}

#[tokio::test(start_paused = true)]
async fn a_slot_fetched_after_the_deadline_goes_back() {
    let door = door(1);
    let held = door.acquire(ticket()).await.expect("free");
    let mut late = pin!(door.acquire(Ticket { deadline: now() + ms(20), ..ticket() }));
    assert!(poll_once(late.as_mut()).is_pending());
    // Granted in time; but who asked for it has no time to look.
    drop(held);
    tokio::time::advance(ms(30)).await;
    let Poll::Ready(Err(error)) = poll_once(late.as_mut()) else { panic!("a slot for nobody") };
    assert_eq!(error.reason(), Some(Reason::Deadline));
    assert_eq!(error.why().map(|why| (why.rule, why.waited)), Some((Rule::Turn, ms(30))));
    assert_settled(&door, 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cool_down_lets_the_next_in_by_itself() {
    let door = door(4);
    let mut failed = door.acquire(ticket()).await.expect("free");
    let begin = now();
    failed.on_failure(1, Failure::Other, Some(ms(2_000)));
    drop(failed);
    let budget = Ticket { wait: Some(ms(100)), ..ticket() };
    let permit = door.acquire(budget).await.expect("its budget stood still");
    let waited = (permit.admitted_at() - begin).as_millis();
    assert!((2_000..=2_230).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_that_outlasts_a_deadline_is_told_at_once() {
    let door = door(1);
    let mut held = door.acquire(ticket()).await.expect("free");
    let begin = now();
    let mut waits = pin!(door.acquire(Ticket { deadline: begin + ms(5_000), ..ticket() }));
    assert!(poll_once(waits.as_mut()).is_pending());
    held.on_failure(1, Failure::Other, Some(ms(60_000)));
    assert_eq!(reason(waits.await), Reason::CoolDown);
    assert_eq!(now(), begin);
}

/// The slots were all taken when the cool-down ended; the probe goes when one is given back, and hangs. The others are let in by the pump, which
/// has to be told of the probe.
#[tokio::test(start_paused = true)]
async fn a_probe_sent_by_a_release_is_timed_too() {
    let door = door(2);
    let mut first = door.acquire(ticket()).await.expect("free");
    let second = door.acquire(ticket()).await.expect("free");
    first.on_failure(1, Failure::Other, Some(ms(1_000)));
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let door = door.clone();
            tokio::spawn(async move {
                let permit = door.acquire(ticket()).await.expect("a slot");
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
async fn draining_refuses_who_waits_and_who_comes() {
    let door = door(1);
    let held = door.acquire(ticket()).await.expect("free");
    let mut waits = pin!(door.acquire(ticket()));
    assert!(poll_once(waits.as_mut()).is_pending());
    door.drain();
    assert_eq!(reason(waits.await), Reason::Draining);
    assert_eq!(reason(door.acquire(ticket()).await), Reason::Draining);
    assert_eq!(door.view().in_flight, 1, "what is in flight goes on");
    drop(held);
    assert_eq!(door.view().in_flight, 0);
}
