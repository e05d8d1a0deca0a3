//! The threads that work for an event loop on virtual time (`asyncio.to_thread`).
//!
//! Time stands still while a thread computes. When a thread waits for the gate, the loop continues, and
//! time with it. The thread counts as computing from its wake on: the waker sets that itself, because no
//! time may pass between the wake and the thread's first step.

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
    static WORK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The threads that compute and those that wait.
#[derive(Default)]
pub(super) struct Threads {
    works: Mutex<Works>,
    stir: Notify,
}

#[derive(Default)]
struct Works {
    next: u64,
    /// Whether the work with this number computes.
    awake: HashMap<u64, bool>,
}

impl Threads {
    pub(super) fn begin(&self) -> u64 {
        let mut works = self.works.lock();
        let number = works.next;
        works.next += 1;
        works.awake.insert(number, true);
        number
    }

    pub(super) fn end(&self, work: u64) {
        self.works.lock().awake.remove(&work);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.works.lock().awake.values().any(|awake| *awake)
    }

    pub(super) fn enter(work: u64) {
        WORK.set(Some(work));
    }

    pub(super) fn leave() {
        WORK.set(None);
    }

    /// Returns the number of this thread's work, if the thread works for a loop.
    pub(super) fn present() -> Option<u64> {
        WORK.get()
    }

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

const RUNNING: u8 = 0;
const NOTIFIED: u8 = 1;
const ASLEEP: u8 = 2;

struct Sleeper {
    threads: Arc<Threads>,
    work: u64,
    state: AtomicU8,
    waker: AtomicWaker,
}

impl Sleeper {
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
