//! Tests of one target that is used from several runtimes, and from threads without a runtime.

use tokio::runtime::Runtime;

use super::*;
use crate::cooldown::Failure;

fn paused() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// Starts a task on `runtime` that waits for a slot for at most `wait`. Returns the handle of the
/// task when its call is queued.
fn queue(
    runtime: &Runtime,
    admission: &Arc<Admission>,
    wait: Duration,
) -> tokio::task::JoinHandle<Result<Permit, Error>> {
    queue_call(runtime, admission, move || Ticket { wait: Some(wait), ..ticket() })
}

/// Starts a task on `runtime` that waits for a slot with the ticket that `ticket` returns there.
/// Returns the handle of the task when its call is queued.
fn queue_call(
    runtime: &Runtime,
    admission: &Arc<Admission>,
    ticket: impl FnOnce() -> Ticket + Send + 'static,
) -> tokio::task::JoinHandle<Result<Permit, Error>> {
    let before = admission.view().waiting;
    let task = runtime.spawn({
        let admission = admission.clone();
        async move { admission.acquire(ticket()).await }
    });
    runtime.block_on(async {
        while admission.view().waiting == before {
            tokio::task::yield_now().await;
        }
    });
    task
}

/// Runs `runtime` until the task `waits` has ended, and returns its result. Panics if the task does
/// not end within 60 s.
fn answer(runtime: &Runtime, waits: tokio::task::JoinHandle<Result<Permit, Error>>) -> Result<Permit, Error> {
    let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), waits).await });
    answer.expect("it is woken").expect("no panic")
}

#[test]
fn runtime_shutdown_drops_its_calls_and_another_runtime_continues() {
    let first = paused();
    let admission = first.block_on(async { admission(1) });
    let held = first.block_on(admission.acquire(ticket())).expect("free");
    (0..50).for_each(|_| drop(queue(&first, &admission, ms(1_000))));
    assert_eq!(admission.view().waiting, 50);
    drop(first);
    assert_eq!(admission.view().waiting, 0);

    let second = paused();
    let waits = queue(&second, &admission, ms(1_000));
    let refused = answer(&second, waits);
    assert_eq!(reason(refused), Reason::WaitBudget, "the timer task runs again");
    drop(held);
    second.block_on(assert_settled(&admission, 1));
}

/// The timer task runs on the first runtime, which shuts down. A call that waits on the second
/// runtime must still be rejected in time.
#[test]
fn runtime_shutdown_restarts_the_pump_for_calls_of_other_runtimes() {
    let (first, second) = (paused(), paused());
    let admission = first.block_on(async { admission(1) });
    let held = first.block_on(admission.acquire(ticket())).expect("free");
    let _gone = queue(&first, &admission, ms(1_000));
    let waits = queue(&second, &admission, ms(1_000));
    drop(first);
    let refused = answer(&second, waits);
    assert_eq!(reason(refused), Reason::WaitBudget);
    drop(held);
    second.block_on(assert_settled(&admission, 1));
}

/// The timer task runs on the first runtime, which exists but is no longer driven. Calls on the
/// second runtime must still be rejected when their waits end.
#[test]
fn calls_are_rejected_in_time_if_the_runtime_of_the_timer_is_not_driven() {
    let (first, second) = (paused(), paused());
    let admission = first.block_on(async { admission(1) });
    let held = first.block_on(admission.acquire(ticket())).expect("free");
    let stays = queue(&first, &admission, ms(600_000));
    let by_deadline = queue_call(&second, &admission, || Ticket { deadline: now() + ms(2_000), ..ticket() });
    let by_budget = queue(&second, &admission, ms(1_000));
    assert_eq!(reason(answer(&second, by_budget)), Reason::WaitBudget);
    assert_eq!(admission.view().waiting, 2);
    assert_eq!(reason(answer(&second, by_deadline)), Reason::Deadline);
    drop((stays, first, held));
    second.block_on(assert_settled(&admission, 1));
}

/// Drops a permit on a thread without a runtime, such as that of a garbage collector, during a
/// cool-down and while calls wait.
#[test]
fn permit_may_be_dropped_outside_of_a_runtime() {
    let first = paused();
    let admission = first.block_on(async { admission(1) });
    let mut held = first.block_on(admission.acquire(ticket())).expect("free");
    let waits = queue(&first, &admission, ms(10_000));
    first.block_on(async { held.on_failure(1, Failure::Other, Some(ms(500)), || None) });
    std::thread::spawn(move || drop(held)).join().expect("no panic");
    let permit = answer(&first, waits).expect("a slot after the cool-down");
    assert!(permit.waited() >= ms(500));
    drop(permit);
    first.block_on(assert_settled(&admission, 1));
}
