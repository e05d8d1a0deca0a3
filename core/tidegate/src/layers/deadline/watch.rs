//! A task that closes response bodies that are not read, after their deadline or the `stall` limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;

use super::body::OpenBody;
use crate::clock;

/// Time between two checks of the open bodies: 1 s.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time without a check after which another task is started: 5 s. The runtime of the task may be
/// kept without being driven.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// Closes the overdue response bodies of a gate, in one task that runs only while bodies are open.
#[derive(Default)]
pub(super) struct BodyWatch(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// The bodies that were not dropped.
    bodies: Slab<Arc<OpenBody>>,
    /// When the task last checked the bodies or, before its first check, when it was started.
    /// `None` if no task is running.
    checked_at: Option<Instant>,
    /// Number of tasks started so far. Only the latest one checks the bodies.
    generation: u64,
}

/// A guard that removes a body from its [`BodyWatch`] when it is dropped.
pub(super) struct WatchGuard {
    watch: Arc<BodyWatch>,
    index: usize,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let body = self.watch.0.lock().bodies.remove(self.index);
        // Outside the lock, because dropping a body releases its slot, which wakes other tasks.
        drop(body);
    }
}

impl BodyWatch {
    /// Adds a body, which is checked until the returned guard is dropped. Starts the task if it is
    /// not running, or if it has made no check for [`LOST_AFTER`].
    pub(super) fn add(self: &Arc<Self>, body: Arc<OpenBody>) -> WatchGuard {
        let now = clock::now();
        let mut open = self.0.lock();
        let index = open.bodies.insert(body);
        let is_running = open.checked_at.is_some_and(|at| now.saturating_duration_since(at) < LOST_AFTER);
        if !is_running {
            open.checked_at = Some(now);
            open.generation += 1;
        }
        let generation = open.generation;
        drop(open);
        if !is_running {
            // Outside the lock: a runtime that shuts down drops the task at once, which takes the
            // lock.
            tokio::spawn(run(RunningWatch { watch: self.clone(), generation, is_done: false }));
        }
        WatchGuard { watch: self.clone(), index }
    }

    /// Closes the bodies that are overdue at `now`. Returns `false` if the task `generation` must
    /// end, because no body is left or a later task was started.
    fn close_overdue(&self, now: Instant, generation: u64) -> bool {
        let mut open = self.0.lock();
        if open.generation != generation {
            return false;
        }
        let overdue: Vec<_> =
            open.bodies.iter().map(|(_, body)| body).filter(|body| body.is_overdue(now)).cloned().collect();
        let is_running = !open.bodies.is_empty();
        open.checked_at = is_running.then_some(now);
        drop(open);
        // Outside the lock: closing a body releases its slot, which wakes other tasks.
        overdue.iter().for_each(|body| body.close(now));
        is_running
    }
}

impl std::fmt::Debug for BodyWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyWatch").field("open", &self.0.lock().bodies.len()).finish()
    }
}

/// The state of the task of a [`BodyWatch`] while it runs. If a runtime shuts down and drops the
/// task, the next response body starts another task.
struct RunningWatch {
    watch: Arc<BodyWatch>,
    /// The number of the task.
    generation: u64,
    /// `true` if no open body is left or a later task was started, so that the task ends.
    is_done: bool,
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        let mut open = self.watch.0.lock();
        if !self.is_done && open.generation == self.generation {
            open.checked_at = None;
        }
    }
}

/// Runs the task: checks the open bodies once per [`INTERVAL`], until none is left.
async fn run(mut running: RunningWatch) {
    while !running.is_done {
        tokio::time::sleep(INTERVAL).await;
        running.is_done = !running.watch.close_overdue(clock::now(), running.generation);
    }
}
