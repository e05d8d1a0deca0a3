//! Threads that work for an event loop on virtual time (`asyncio.to_thread`).
//!
//! Time does not advance while a thread computes. While a thread waits for the gate, the loop and
//! its time continue. A thread counts as computing from the moment it is woken. Its waker records
//! this, because no time may pass between the wake-up and the thread's first step.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

thread_local! {
    // The number of this thread's work, if it works for a loop.
    static WORK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The threads that compute and those that wait.
#[derive(Default)]
pub(super) struct Threads {
    works: Mutex<Works>,
    stir: Notify,
}

/// The works of the threads, by number.
#[derive(Default)]
struct Works {
    next: u64,
    /// Whether the work with this number computes.
    awake: HashMap<u64, bool>,
}

impl Threads {
    /// Registers a work as computing, and returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut works = self.works.lock();
        let number = works.next;
        works.next += 1;
        works.awake.insert(number, true);
        number
    }

    /// Removes a work that has ended.
    pub(super) fn end(&self, work: u64) {
        self.works.lock().awake.remove(&work);
    }

    /// Returns `true` if a work computes.
    pub(super) fn is_busy(&self) -> bool {
        self.works.lock().awake.values().any(|awake| *awake)
    }

    /// Assigns this thread to a work.
    pub(super) fn enter(work: u64) {
        WORK.set(Some(work));
    }

    /// Ends the assignment of this thread.
    pub(super) fn leave() {
        WORK.set(None);
    }

    /// Returns the number of this thread's work, if the thread works for a loop.
    pub(super) fn present() -> Option<u64> {
        WORK.get()
    }

    /// Wakes the loop, because a thread computes again or has called back.
    pub(super) fn stir(&self) {
        self.stir.notify_one();
    }

    /// Waits until a thread computes again or calls back.
    pub(super) async fn stirred(&self) {
        self.stir.notified().await;
    }

    /// Waits for the future on the thread of this work, while the loop advances time.
    pub(super) async fn beside<F: Future>(self: &Arc<Self>, work: u64, future: F) -> F::Output {
        let sleeper = Arc::new(Sleeper {
            threads: self.clone(),
            work,
            state: AtomicU8::new(RUNNING),
            waker: AtomicWaker::new(),
        });
        let mut future = pin!(future);
        std::future::poll_fn(|cx| sleeper.poll(future.as_mut(), cx)).await
    }

    /// Sets whether the work computes. Does nothing for a work that has ended.
    fn set(&self, work: u64, awake: bool) {
        if let Some(state) = self.works.lock().awake.get_mut(&work) {
            *state = awake;
        }
        if awake {
            self.stir();
        }
    }
}

// The states of a `Sleeper`: its future is being polled, was woken meanwhile, or waits.
const RUNNING: u8 = 0;
const NOTIFIED: u8 = 1;
const ASLEEP: u8 = 2;

/// A waker for one work that waits. It records that the work computes again.
struct Sleeper {
    threads: Arc<Threads>,
    work: u64,
    state: AtomicU8,
    waker: AtomicWaker,
}

impl Sleeper {
    /// Polls the future, and records that the work waits if the result is pending.
    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.waker.register(cx.waker());
        self.state.store(RUNNING, Ordering::Release);
        let waker = Waker::from(self.clone());
        let polled = future.poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            // Under the lock that a wake takes too, so that neither overwrites a later state.
            let mut works = self.threads.works.lock();
            let slept =
                self.state.compare_exchange(RUNNING, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if slept && let Some(awake) = works.awake.get_mut(&self.work) {
                *awake = false;
            }
        }
        polled
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            self.threads.set(self.work, true);
        }
        self.waker.wake();
    }
}
