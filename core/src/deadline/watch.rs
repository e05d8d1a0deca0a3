//! Looks, once a second, for bodies that nobody reads any more, and for those that have outlived their deadline unread.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::body::Cell;
use crate::clock;

const EVERY: Duration = Duration::from_secs(1);

/// The watch over a gate's open bodies. One small task, alive only while there are any.
#[derive(Default)]
pub struct Watch(Mutex<Open>);

#[derive(Default)]
struct Open {
    cells: Vec<Weak<Cell>>,
    watched: bool,
}

impl Watch {
    pub(super) fn over(self: &Arc<Self>, cell: &Arc<Cell>) {
        let mut open = self.0.lock();
        open.cells.push(Arc::downgrade(cell));
        if !std::mem::replace(&mut open.watched, true) {
            tokio::spawn(run(Shift { watch: self.clone(), over: false }));
        }
    }

    /// Closes what is overdue; `false`: nothing is left to watch, and nobody watches.
    fn round(&self, now: Instant) -> bool {
        let mut overdue = Vec::new();
        let watched = {
            let mut open = self.0.lock();
            open.cells.retain(|weak| {
                let Some(cell) = weak.upgrade() else { return false };
                let stays = !cell.is_overdue(now);
                if !stays {
                    overdue.push(cell);
                }
                stays
            });
            open.watched = !open.cells.is_empty();
            open.watched
        };
        // Outside the lock: closing gives slots back, and that wakes others.
        overdue.iter().for_each(|cell| cell.close(now));
        watched
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("open", &self.0.lock().cells.len()).finish()
    }
}

/// The running task. A runtime that shuts down drops it before its time, and then the next body starts another.
struct Shift {
    watch: Arc<Watch>,
    over: bool,
}

impl Drop for Shift {
    fn drop(&mut self) {
        if !self.over {
            self.watch.0.lock().watched = false;
        }
    }
}

async fn run(mut shift: Shift) {
    while !shift.over {
        tokio::time::sleep(EVERY).await;
        shift.over = !shift.watch.round(clock::now());
    }
}
