//! One door, several runtimes, and threads that belong to none.

use tokio::runtime::Runtime;

use super::*;
use crate::cooldown::Failure;

fn paused() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// Queues a call in a task of its own, and sees to it that it waits.
fn queue(
    runtime: &Runtime,
    door: &Arc<Admission>,
    wait: Duration,
) -> tokio::task::JoinHandle<Result<Permit, Error>> {
    let before = door.view().waiting;
    let task = runtime.spawn({
        let door = door.clone();
        async move { door.acquire(Ticket { wait: Some(wait), ..ticket() }).await }
    });
    runtime.block_on(async {
        while door.view().waiting == before {
            tokio::task::yield_now().await;
        }
    });
    task
}

/// What a waiting call is told; fails where it would wait for ever.
fn answer(runtime: &Runtime, waits: tokio::task::JoinHandle<Result<Permit, Error>>) -> Result<Permit, Error> {
    let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), waits).await });
    answer.expect("it is woken").expect("no panic")
}

#[test]
fn a_runtime_that_ends_takes_its_calls_along_and_the_next_one_works() {
    let first = paused();
    let door = first.block_on(async { door(1) });
    let held = first.block_on(door.acquire(ticket())).expect("free");
    (0..50).for_each(|_| drop(queue(&first, &door, ms(1_000))));
    assert_eq!(door.view().waiting, 50);
    drop(first);
    assert_eq!(door.view().waiting, 0);

    let second = paused();
    let waits = queue(&second, &door, ms(1_000));
    let refused = answer(&second, waits);
    assert_eq!(reason(refused), Reason::WaitBudget, "the pump runs again");
    drop(held);
    second.block_on(assert_settled(&door, 1));
}

/// The pump ran on the first runtime. The call that waits on the second must not wait for ever.
#[test]
fn a_runtime_that_ends_leaves_the_calls_of_others_a_pump() {
    let (first, second) = (paused(), paused());
    let door = first.block_on(async { door(1) });
    let held = first.block_on(door.acquire(ticket())).expect("free");
    let _gone = queue(&first, &door, ms(1_000));
    let waits = queue(&second, &door, ms(1_000));
    drop(first);
    let refused = answer(&second, waits);
    assert_eq!(reason(refused), Reason::WaitBudget);
    drop(held);
    second.block_on(assert_settled(&door, 1));
}

/// As a garbage collector's thread does, while a cool-down is on and calls wait.
#[test]
fn a_permit_may_be_dropped_outside_of_any_runtime() {
    let first = paused();
    let door = first.block_on(async { door(1) });
    let mut held = first.block_on(door.acquire(ticket())).expect("free");
    let waits = queue(&first, &door, ms(10_000));
    first.block_on(async { held.on_failure(1, Failure::Other, Some(ms(500))) });
    std::thread::spawn(move || drop(held)).join().expect("no panic");
    let permit = answer(&first, waits).expect("a slot after the cool-down");
    assert!(permit.waited() >= ms(500));
    drop(permit);
    first.block_on(assert_settled(&door, 1));
}
