//! Releases the slots of lost response bodies while calls wait for slots.
//!
//! A body that the program no longer references, for example because a loop over a stream was left
//! with `break`, occupies its slot until Python drops it. Bodies in reference cycles are dropped by
//! the cyclic garbage collector only, which runs when many objects have been created. Waiting
//! creates no objects. Therefore, a waiting call runs the collector if bodies may be lost.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tidegate_bindings::open_bodies;
use tokio::time::{Instant, timeout};

use super::blocking_wait::block_on;
use super::loop_actions::{LoopAction, Mailbox};
use super::{Port, runtime};

/// The time for which a call waits before its first check for lost bodies. Also the shortest time
/// after which a collection is repeated.
const FIRST_CHECK: Duration = Duration::from_secs(1);

/// The maximum time between two checks of one call. Until then, the time doubles with each check.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(8);

/// The number of response bodies for whose next chunk the program waits.
static PENDING_READS: AtomicUsize = AtomicUsize::new(0);

/// A guard that counts one response body as being read until the guard is dropped.
pub(crate) struct PendingRead(());

impl PendingRead {
    /// Counts a response body as being read until the returned value is dropped.
    pub(crate) fn begin() -> Self {
        PENDING_READS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        PENDING_READS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Decides for the calls of one gate when the garbage collector is run.
struct GateWatch {
    gate: tidegate::Gate,
    /// The number of calls and slot requests that have got their result.
    answered: AtomicU64,
    last: Mutex<Option<Collection>>,
}

/// The latest run of the garbage collector on behalf of a gate.
struct Collection {
    /// The number of answered calls at that time.
    answered: u64,
    /// The time for which no other run follows unless a call is answered.
    pause: Duration,
    time: Instant,
}

impl GateWatch {
    /// Returns `true` if the caller must run the garbage collector now: calls are queued, nobody
    /// reads some open body, and no other call has run the collector recently. `answered` is the
    /// number of answered calls, which has not changed since the previous check.
    fn begin_collection(&self, answered: u64) -> bool {
        if open_bodies() <= PENDING_READS.load(Ordering::Relaxed) || self.gate.waiting() == 0 {
            return false;
        }
        let (mut last, time) = (self.last.lock(), Instant::now());
        let pause = match &*last {
            Some(last) if last.answered == answered => {
                if time < last.time + last.pause {
                    return false;
                }
                last.pause.saturating_mul(2)
            }
            _ => FIRST_CHECK * 2,
        };
        *last = Some(Collection { answered, pause, time });
        true
    }
}

/// Owned by an open gate. Creates the [`LostBodies`] of its calls.
pub(crate) struct LostBodyWatch(Arc<GateWatch>);

impl LostBodyWatch {
    pub(crate) fn new(gate: tidegate::Gate) -> Self {
        Self(Arc::new(GateWatch { gate, answered: AtomicU64::new(0), last: Mutex::default() }))
    }

    /// Returns a handle for one call of the gate.
    pub(crate) fn for_call(&self) -> LostBodies {
        LostBodies(Arc::downgrade(&self.0))
    }
}

/// Runs the garbage collector while a call waits, if response bodies may be lost: calls are queued,
/// nobody reads some open body, and no call of the gate has been answered for a while.
#[derive(Clone)]
pub(crate) struct LostBodies(Weak<GateWatch>);

impl LostBodies {
    /// Returns the output of `call`, and counts it as answered.
    pub(crate) async fn count<F: Future>(self, call: F) -> F::Output {
        let output = call.await;
        if let Some(watch) = self.0.upgrade() {
            watch.answered.fetch_add(1, Ordering::Relaxed);
        }
        output
    }

    /// Waits for `call` on a worker thread, and returns its output. The event loop of `mailbox`
    /// runs the collector.
    pub(crate) async fn wait<F: Future>(self, mailbox: Mailbox, call: F) -> F::Output {
        let mut call = pin!(call);
        let mut checks = Checks::new(self);
        loop {
            if let Ok(output) = timeout(checks.interval, call.as_mut()).await {
                return output;
            }
            if checks.is_collection_due() {
                mailbox.post(CollectGarbage);
            }
        }
    }

    /// Waits for `call` on this thread, as [`block_on`] does, and returns its output. This thread
    /// runs the collector.
    pub(crate) fn block_on<F>(&self, py: Python<'_>, call: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        // Declared before the call, so that the call is dropped inside the runtime.
        let runtime = runtime::handle()?;
        let _context = runtime.enter();
        let mut call = pin!(call);
        let mut checks = Checks::new(self.clone());
        loop {
            // The interpreter may have begun to exit during a check.
            if runtime::is_stopped() {
                return Err(runtime::thread_exit());
            }
            let (interval, call) = (checks.interval, call.as_mut());
            if let Ok(output) = block_on(py, async move { timeout(interval, call).await })? {
                return Ok(output);
            }
            if checks.is_collection_due() {
                collect_garbage(py)?;
            }
        }
    }
}

/// The checks for lost bodies that one waiting call makes.
struct Checks {
    bodies: LostBodies,
    /// The time until the next check.
    interval: Duration,
    /// The number of answered calls at the previous check.
    answered: u64,
}

impl Checks {
    fn new(bodies: LostBodies) -> Self {
        let answered = bodies.0.upgrade().map_or(0, |watch| watch.answered.load(Ordering::Relaxed));
        Self { bodies, interval: FIRST_CHECK, answered }
    }

    /// Makes one check, and returns `true` if the caller must run the garbage collector now.
    fn is_collection_due(&mut self) -> bool {
        self.interval = (self.interval * 2).min(MAX_CHECK_INTERVAL);
        let Some(watch) = self.bodies.0.upgrade() else { return false };
        let answered = watch.answered.load(Ordering::Relaxed);
        let is_quiet = std::mem::replace(&mut self.answered, answered) == answered;
        is_quiet && watch.begin_collection(answered)
    }
}

/// Runs the garbage collector on the thread of an event loop.
struct CollectGarbage;

impl LoopAction for CollectGarbage {
    fn run(self: Box<Self>, py: Python<'_>, _: &Py<Port>) -> PyResult<()> {
        collect_garbage(py)
    }
}

fn collect_garbage(py: Python<'_>) -> PyResult<()> {
    py.import("gc")?.call_method0("collect").map(drop)
}
