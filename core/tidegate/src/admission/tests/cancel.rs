//! Tests of calls that are cancelled before, during or after their wait for a slot: no slot is
//! lost.

use std::pin::pin;

use super::*;
use crate::adaptive::{self, Ended};
use crate::config::AdaptiveConfig;
use crate::cooldown::Failure;

const LIMIT: usize = 4;

/// Waits for a slot as the call with this number, holds the slot for a few milliseconds, and
/// reports a random outcome. The call may give up at a random stage before that.
async fn call(admission: Arc<Admission>, number: u64, mut rng: fastrand::Rng) {
    let mut ticket = ticket();
    ticket.tenant = format!("tenant-{}", number % 7).into();
    ticket.lane = Lane::ALL[rng.usize(..3)];
    ticket.deadline = now() + ms(rng.u64(1..20_000));
    ticket.wait = rng.bool().then(|| ms(rng.u64(1..5_000)));
    ticket.streams = rng.u8(..4) > 0;
    tokio::time::sleep(ms(rng.u64(..2_000))).await;
    let acquire = admission.acquire(ticket);
    let stage = rng.u8(..10);
    if stage == 0 {
        return drop(acquire);
    }
    let mut acquire = Box::pin(acquire);
    if stage == 1 {
        // In the queue, or in the poll that granted a free slot.
        return drop(poll_once(acquire.as_mut()));
    }
    let patience = ms(if stage < 5 { rng.u64(..1_000) } else { 30_000 });
    let granted = tokio::time::timeout(patience, acquire.as_mut()).await;
    drop(acquire);
    let Ok(Ok(mut permit)) = granted else { return };
    tokio::time::sleep(ms(rng.u64(..5))).await;
    match rng.u8(..8) {
        0..2 => permit.mark_unobservable(),
        2 => {}
        _ => permit.on_first_token(),
    }
    match rng.u8(..8) {
        0 => permit.set_ended(Ended::TimedOut),
        1 => permit.set_ended(Ended::Overloaded),
        2 => permit.set_ended(Ended::Limited { by_rate: rng.bool() }),
        3 => {}
        _ => permit.set_ended(Ended::Completed { output: rng.u64(..500) }),
    }
    match rng.u8(..30) {
        0 => drop(permit.on_failure(number, Failure::Other, Some(ms(rng.u64(1..300))), || None)),
        1..3 => drop(permit.on_failure(number, Failure::Other, None, || None)),
        // Ends the task as a panic does, without its message.
        3 => std::panic::resume_unwind(Box::new("on purpose")),
        4..6 => return,
        _ => permit.on_success(),
    }
    tokio::time::sleep(ms(rng.u64(..5))).await;
}

async fn storm(admission: &Arc<Admission>, seed: u64, calls: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut tasks: Vec<_> =
        (0..calls).map(|number| tokio::spawn(call(admission.clone(), number, rng.fork()))).collect();
    rng.shuffle(&mut tasks);
    for (k, task) in tasks.iter().enumerate() {
        // Cancelled from outside at a random moment: holding a slot, waiting, or granted and not
        // yet polled.
        if k % 3 == 0 {
            tokio::time::sleep(ms(rng.u64(..2))).await;
            task.abort();
        }
    }
    for task in tasks {
        if let Err(ended) = task.await {
            assert!(ended.is_cancelled() || ended.is_panic());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_cancels_leave_nothing_behind() {
    for seed in 0..4 {
        let admission = admission(LIMIT);
        storm(&admission, seed, 2_500).await;
        assert_settled(&admission, LIMIT).await;
    }
}

/// The limit is adaptive, so the outcomes of the calls change it while calls are cancelled.
#[tokio::test(start_paused = true)]
async fn random_cancels_leave_nothing_behind_an_adaptive_limit() {
    for seed in 0..4 {
        let config = AdaptiveConfig { start: 3, awaiting: Some(2), ..AdaptiveConfig::default() };
        let objective = Some(ms(3));
        let adaptive =
            adaptive::LimitSettings { max: 12, objective, latency: None, tpot: None, adaptive: config };
        let admission = with_settings(&SchedulerSettings { adaptive: Some(adaptive), ..settings(12) });
        storm(&admission, seed, 2_500).await;
        let view = admission.view();
        let found = view.adaptive.expect("it is found").limit;
        assert_eq!((view.in_flight, view.waiting, found.awaiting), (0, 0, 0));
        assert!(found.cuts > 0 && found.raises > 0, "{found:?}");
        // After a pause every slot can be acquired again, and no more.
        tokio::time::sleep(ms(60_000)).await;
        let all: Vec<_> = (0..found.limit).map(|_| admission.try_acquire(&ticket())).collect();
        assert!(all.iter().all(|got| matches!(got, Ok(Some(_)))), "{found:?} {:?}", admission.view());
        assert!(matches!(admission.try_acquire(&ticket()), Ok(None)));
    }
}

/// Uses several threads, so that slots are granted and calls are cancelled at the same time. The
/// result does not depend on the timing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancels_on_many_threads_leave_nothing_behind() {
    let admission = admission(LIMIT);
    let tasks: Vec<_> = (0..10_000u64)
        .map(|number| {
            let admission = admission.clone();
            tokio::spawn(async move {
                let mut rng = fastrand::Rng::with_seed(number);
                let mut acquire = Box::pin(admission.acquire(ticket()));
                for _ in 0..rng.u8(..4) {
                    if let Poll::Ready(granted) = poll_once(acquire.as_mut()) {
                        tokio::task::yield_now().await;
                        return drop(granted);
                    }
                    tokio::task::yield_now().await;
                }
                if rng.bool() {
                    drop(acquire.await.expect("a slot"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_settled(&admission, LIMIT).await;
}

#[tokio::test(start_paused = true)]
async fn slot_granted_to_a_cancelled_call_goes_to_the_next() {
    let admission = admission(1);
    let held = admission.acquire(ticket()).await.expect("free");
    let mut second = Box::pin(admission.acquire(ticket()));
    let mut third = pin!(admission.acquire(ticket()));
    assert!(poll_once(second.as_mut()).is_pending() && poll_once(third.as_mut()).is_pending());
    drop(held);
    assert_eq!(admission.view().waiting, 1, "the second has it, and does not know yet");
    drop(second);
    let granted = third.await.expect("the slot");
    drop(granted);
    assert_settled(&admission, 1).await;
}

#[tokio::test(start_paused = true)]
async fn panic_releases_the_slot() {
    let admission = admission(1);
    let died = tokio::spawn({
        let admission = admission.clone();
        async move {
            let _permit = admission.acquire(ticket()).await.expect("free");
            panic!("on purpose");
        }
    });
    assert!(died.await.expect_err("panicked").is_panic());
    assert_settled(&admission, 1).await;
}

/// The probe, the first attempt after a cool-down, is granted to a call that is cancelled before it
/// receives the slot. The next waiting call then becomes the probe immediately.
#[tokio::test(start_paused = true)]
async fn probe_granted_to_a_cancelled_call_goes_to_the_next() {
    let admission = admission(2);
    let mut failed = admission.acquire(ticket()).await.expect("free");
    failed.on_failure(1, Failure::Other, Some(ms(1_000)), || None);
    drop(failed);
    let begin = now();
    let mut gone = Box::pin(admission.acquire(ticket()));
    assert!(poll_once(gone.as_mut()).is_pending());
    let stays = tokio::spawn({
        let admission = admission.clone();
        async move { admission.acquire(ticket()).await.map(|permit| permit.admitted_at()) }
    });
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(admission.view().in_flight, 1, "granted, not yet seen");
    drop(gone);
    let admitted = stays.await.expect("no panic").expect("a slot");
    assert_eq!(admitted - begin, ms(1_500));
}
