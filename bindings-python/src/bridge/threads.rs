//! The threads that work for an event loop on virtual time (`asyncio.to_thread`).
//!
//! Time stands still while one of them computes. One that waits for the gate lets the loop go on, and with it time; from the moment it is woken it
//! computes again, which the waker says itself: nothing may pass between the wake and the thread's own first step.

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

/// Who computes, and who waits.
#[derive(Default)]
pub(super) struct Threads {
    works: Mutex<Works>,
    stir: Notify,
}

#[derive(Default)]
struct Works {
    next: u64,
    /// Whether it computes.
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

    /// What this thread works at, if it works for a loop.
    pub(super) fn present() -> Option<u64> {
        WORK.get()
    }

    pub(super) fn stir(&self) {
        self.stir.notify_one();
    }

    /// Resolves when a thread begins to compute again, or called back.
    pub(super) async fn stirred(&self) {
        self.stir.notified().await;
    }

    /// The future, waited for beside the loop.
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

    /// A work that has ended (its future was cancelled) is nobody's concern.
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
            // Under the lock that a wake takes too, so that neither says what the other has overtaken.
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
