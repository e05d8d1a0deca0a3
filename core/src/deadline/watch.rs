//! Looks, once a second, for bodies that nobody reads any more, and for those that have outlived their deadline unread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::body::Cell;
use crate::clock;

const EVERY: Duration = Duration::from_secs(1);

/// The watch over a gate's open bodies. One small task, alive only while there are any.
#[derive(Default)]
pub struct Watch {
    cells: Mutex<Vec<Weak<Cell>>>,
    running: AtomicBool,
}

impl Watch {
    pub(super) fn over(self: &Arc<Self>, cell: &Arc<Cell>) {
        self.cells.lock().push(Arc::downgrade(cell));
        if !self.running.swap(true, Ordering::AcqRel) {
            tokio::spawn(run(Running(self.clone())));
        }
    }

    /// Closes what is overdue; `false`: nothing is left to watch.
    fn round(&self, now: Instant) -> bool {
        let mut overdue = Vec::new();
        let left = {
            let mut cells = self.cells.lock();
            cells.retain(|weak| match weak.upgrade() {
                Some(cell) => {
                    let is_overdue = cell.is_overdue(now);
                    if is_overdue {
                        overdue.push(cell);
                    }
                    !is_overdue
                }
                None => false,
            });
            !cells.is_empty()
        };
        // Outside the lock: closing gives slots back, and that wakes others.
        overdue.iter().for_each(|cell| cell.close(now));
        left
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("open", &self.cells.lock().len()).finish_non_exhaustive()
    }
}

/// The running task; a runtime that shuts down drops it, and then the next body starts another.
struct Running(Arc<Watch>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

async fn run(running: Running) {
    let watch = running.0.clone();
    loop {
        tokio::time::sleep(EVERY).await;
        if !watch.round(clock::now()) {
            drop(running);
            // A body may have come between the last look and the switch.
            if !watch.cells.lock().is_empty() && !watch.running.swap(true, Ordering::AcqRel) {
                tokio::spawn(run(Running(watch)));
            }
            return;
        }
    }
}
