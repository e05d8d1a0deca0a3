//! Measures the cost of queue operations among many waiting calls: joining and leaving the queue,
//! and passing a released slot to a waiting call.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::policy::schedule::Ticket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::std_now;
use super::timed_operations::{SEMAPHORE, admission, ticket};
use crate::Fallible;
use crate::report::{Op, Report, Spread};

const ROUNDS: usize = 15;
const BATCH: usize = 1_000;
const SLOTS: usize = 64;

/// Times queue operations with 10 to 100,000 waiting calls, and records figures and pass criteria
/// in `report`.
pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    let mut ours_at = Vec::new();
    for waiting in [10, 1_000, 100_000] {
        eprintln!("{waiting} waiting");
        let mut ours = Line::new(gate()?, waiting)?;
        let mut semaphore = Line::new(semaphore(), waiting)?;
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            for (place, ns) in
                [ours.join_and_leave()?, ours.hand_on()?, semaphore.join_and_leave()?, semaphore.hand_on()?]
                    .into_iter()
                    .enumerate()
            {
                if let Some(times) = times.get_mut(place) {
                    times.push(ns);
                }
            }
        }
        let [join, hand, their_join, their_hand] = times.map(Spread::of);
        for (what, ours, theirs) in
            [("enqueue + withdraw", join, their_join), ("release + dispatch + enqueue", hand, their_hand)]
        {
            let key = format!("{what}, {waiting} waiting, ns");
            report.figure(&key, ours);
            report.peer(SEMAPHORE, key, theirs);
        }
        ours_at.push((join.median, hand.median));
    }
    // The number of operations grows with the logarithm of the queue, and the number of cache
    // misses with its size.
    if let (Some(few), Some(many)) = (ours_at.first(), ours_at.last()) {
        report.bar("enqueue + withdraw, 100000 / 10 waiting", many.0 / few.0, Op::AtMost, 5.0);
        report.bar("release + dispatch + enqueue, 100000 / 10 waiting", many.1 / few.1, Op::AtMost, 5.0);
    }
    Ok(())
}

type Acquire<P> = Pin<Box<dyn Future<Output = Option<P>>>>;

/// A limiter (Tidegate's admission or a semaphore) whose slots are all taken, with a queue of
/// waiting calls.
struct Line<P> {
    acquire: Box<dyn Fn() -> Acquire<P>>,
    held: VecDeque<P>,
    /// The futures of the waiting calls, by call number. `None` once the call has a slot.
    waiting: Vec<Option<Acquire<P>>>,
    woken: Arc<Mutex<Vec<usize>>>,
}

/// A waker that adds the number of its call to `woken` when the call is woken.
struct Turn {
    number: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push(self.number);
    }
}

impl<P> Line<P> {
    fn new(acquire: Box<dyn Fn() -> Acquire<P>>, waiting: usize) -> Fallible<Self> {
        let mut line = Self { acquire, held: VecDeque::new(), waiting: Vec::new(), woken: Arc::default() };
        for _ in 0..SLOTS {
            let mut call = (line.acquire)();
            match call.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(Some(permit)) => line.held.push_back(permit),
                _ => return Err("no slot of those that were free".into()),
            }
        }
        for number in 0..waiting {
            line.waiting.push(None);
            line.join(number)?;
        }
        Ok(line)
    }

    fn join(&mut self, number: usize) -> Fallible<()> {
        let mut call = (self.acquire)();
        let turn = Waker::from(Arc::new(Turn { number, woken: self.woken.clone() }));
        if call.as_mut().poll(&mut TaskContext::from_waker(&turn)).is_ready() {
            return Err("a slot that nobody gave back, or a refusal".into());
        }
        if let Some(place) = self.waiting.get_mut(number) {
            *place = Some(call);
        }
        Ok(())
    }

    fn join_and_leave(&mut self) -> Fallible<f64> {
        let mut context = TaskContext::from_waker(Waker::noop());
        let start = std_now();
        for _ in 0..BATCH {
            let mut call = (self.acquire)();
            if call.as_mut().poll(&mut context).is_ready() {
                return Err("a slot that nobody gave back, or a refusal".into());
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64)
    }

    /// Releases a slot, polls the waiting call that gets it, and queues another call, [`BATCH`]
    /// times. Returns the mean duration of one such operation, in nanoseconds.
    fn hand_on(&mut self) -> Fallible<f64> {
        let mut context = TaskContext::from_waker(Waker::noop());
        let start = std_now();
        for _ in 0..BATCH {
            drop(self.held.pop_front());
            let number = self.woken.lock().pop().ok_or("nobody was woken")?;
            let call = self.waiting.get_mut(number).and_then(Option::take).ok_or("woken twice")?;
            match { call }.as_mut().poll(&mut context) {
                Poll::Ready(Some(permit)) => self.held.push_back(permit),
                _ => return Err("woken without a slot".into()),
            }
            self.join(number)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64)
    }
}

fn gate() -> Fallible<Box<dyn Fn() -> Acquire<tidegate::internals::Permit>>> {
    let admission = admission()?;
    // Each named tenant's share is half of the slots, so two tenants fill the slots and ten tenants
    // wait.
    let tenants: Vec<Arc<str>> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(Arc::from).into();
    let turn = std::cell::Cell::new(0usize);
    Ok(Box::new(move || {
        turn.set(turn.get() + 1);
        let admission = admission.clone();
        let tenant = tenants.get(turn.get() % tenants.len()).cloned().unwrap_or_default();
        // There is no maximum queue wait and the deadline is late, so no call is rejected on a slow
        // machine.
        let deadline = std_now() + Duration::from_secs(24 * 3600);
        let ticket = Ticket { wait: None, deadline, ..ticket(&tenant) };
        Box::pin(async move { admission.acquire(ticket).await.ok() })
    }))
}

fn semaphore() -> Box<dyn Fn() -> Acquire<OwnedSemaphorePermit>> {
    let semaphore = Arc::new(Semaphore::new(SLOTS));
    Box::new(move || {
        let semaphore = semaphore.clone();
        Box::pin(async move { semaphore.acquire_owned().await.ok() })
    })
}
