//! Tracks the functions that run in executor threads of an event loop on virtual time
//! (`asyncio.to_thread`).
//!
//! Time does not advance while such a function computes, which means that it runs and does not wait
//! for the gate. While it waits for the gate, the loop and its time continue. A function counts as
//! computing from the moment it is woken. Its waker records this, because no time may pass between
//! the wake-up and the thread's first step.

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
    // The number of the function that this thread runs for an event loop. `None` for other threads.
    static WORK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The functions that run in executor threads of one event loop, and whether each of them computes
/// or waits for the gate.
#[derive(Default)]
pub(super) struct Threads {
    work: Mutex<ThreadWork>,
    notification: Notify,
}

/// The functions by number, and the number that the next function gets (`next`).
#[derive(Default)]
struct ThreadWork {
    next: u64,
    /// For each function, by number: `true` if it computes, `false` if it waits for the gate.
    is_computing: HashMap<u64, bool>,
}

impl Threads {
    /// Registers a function as computing, and returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut all_work = self.work.lock();
        let number = all_work.next;
        all_work.next += 1;
        all_work.is_computing.insert(number, true);
        number
    }

    /// Removes the function with this number, which has ended.
    pub(super) fn end(&self, work: u64) {
        self.work.lock().is_computing.remove(&work);
    }

    /// Returns `true` if at least one function computes. Returns `false` if all of them wait for
    /// the gate.
    pub(super) fn is_busy(&self) -> bool {
        self.work.lock().is_computing.values().any(|is_computing| *is_computing)
    }

    /// Records that the calling thread runs the function with this number.
    pub(super) fn enter(work: u64) {
        WORK.set(Some(work));
    }

    /// Records that the calling thread no longer runs a function.
    pub(super) fn leave() {
        WORK.set(None);
    }

    /// Returns the number of the function that the calling thread runs, or `None` if it runs none.
    pub(super) fn current_work() -> Option<u64> {
        WORK.get()
    }

    /// Wakes the event loop. Called when a function computes again, or when a thread has scheduled
    /// a callback.
    pub(super) fn notify(&self) {
        self.notification.notify_one();
    }

    /// Waits until [`Self::notify`] is called.
    pub(super) async fn notified(&self) {
        self.notification.notified().await;
    }

    /// Waits for a future on the thread of the function `work`, and returns its output. Meanwhile,
    /// the function does not count as computing, so that the event loop can advance time.
    pub(super) async fn run_in_thread<F: Future>(self: &Arc<Self>, work: u64, future: F) -> F::Output {
        let waker = Arc::new(ThreadWaker {
            threads: self.clone(),
            work,
            state: AtomicU8::new(RUNNING),
            waker: AtomicWaker::new(),
        });
        let mut future = pin!(future);
        std::future::poll_fn(|cx| waker.poll(future.as_mut(), cx)).await
    }

    /// Records whether the function `work` computes, and wakes the event loop if it does. A
    /// function that has ended is not recorded.
    fn set(&self, work: u64, is_computing: bool) {
        if let Some(state) = self.work.lock().is_computing.get_mut(&work) {
            *state = is_computing;
        }
        if is_computing {
            self.notify();
        }
    }
}

// The states of a `ThreadWaker`: its future is being polled, was woken meanwhile, or waits.
const RUNNING: u8 = 0;
const NOTIFIED: u8 = 1;
const WAITING: u8 = 2;

/// The waker of one function that waits. When it is woken, the function counts as computing again.
struct ThreadWaker {
    threads: Arc<Threads>,
    work: u64,
    state: AtomicU8,
    waker: AtomicWaker,
}

impl ThreadWaker {
    /// Polls the future. If it is pending and was not woken meanwhile, records that the function of
    /// this executor thread waits and no longer computes.
    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.waker.register(cx.waker());
        self.state.store(RUNNING, Ordering::Release);
        let waker = Waker::from(self.clone());
        let polled = future.poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            // Under the lock that a wake takes too, so that neither overwrites a later state.
            let mut all_work = self.threads.work.lock();
            let is_waiting =
                self.state.compare_exchange(RUNNING, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if is_waiting && let Some(is_computing) = all_work.is_computing.get_mut(&self.work) {
                *is_computing = false;
            }
        }
        polled
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == WAITING {
            self.threads.set(self.work, true);
        }
        self.waker.wake();
    }
}
