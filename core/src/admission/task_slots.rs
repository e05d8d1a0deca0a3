//! Which tasks hold model slots, for those who ask for a tool meanwhile.
//!
//! Kept only where tools are configured, and only while a task can do anything beside waiting for its call: from the moment its response is
//! handed up until the slot is back. So it is no larger than the slots that are held.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::context::TaskId;

/// The book of a gate.
#[derive(Default)]
pub(crate) struct Holders(Mutex<Book>);

#[derive(Default)]
struct Book {
    held: HashMap<TaskId, Vec<HeldSlot>>,
    next: u64,
}

/// A model slot, in the hands of a task.
#[derive(Clone)]
pub(crate) struct HeldSlot {
    number: u64,
    pub(crate) target: Arc<str>,
    ahead: Option<Weak<dyn ReadAhead>>,
}

impl Holders {
    /// A task holds a slot, until what this returns is dropped. `ahead`: how its answer is read ahead, where there is one.
    pub(crate) fn enter(
        self: &Arc<Self>,
        task: TaskId,
        target: &Arc<str>,
        ahead: Option<Weak<dyn ReadAhead>>,
    ) -> Holding {
        let mut book = self.0.lock();
        let number = book.next;
        book.next += 1;
        book.held.entry(task).or_default().push(HeldSlot { number, target: target.clone(), ahead });
        Holding { holders: self.clone(), task, number }
    }

    /// What the task holds now.
    pub(crate) fn of(&self, task: TaskId) -> Vec<HeldSlot> {
        self.0.lock().held.get(&task).cloned().unwrap_or_default()
    }
}

impl HeldSlot {
    /// Begins to read the rest of its answer ahead of the reader, if there is one.
    pub(crate) fn read_ahead(&self) -> Option<Wanted> {
        let ahead = self.ahead.as_ref()?.upgrade()?;
        ahead.clone().start();
        Some(Wanted(ahead))
    }

    /// Whether there is an answer at all that could be read ahead.
    pub(crate) fn is_stream(&self) -> bool {
        self.ahead.is_some()
    }
}

/// An entry in the book, for as long as the slot is held.
pub(crate) struct Holding {
    holders: Arc<Holders>,
    task: TaskId,
    number: u64,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut book = self.holders.0.lock();
        if let Some(held) = book.held.get_mut(&self.task) {
            held.retain(|slot| slot.number != self.number);
            if held.is_empty() {
                book.held.remove(&self.task);
            }
        }
    }
}

/// A response that can be read ahead of its reader, so that its slot is released earlier.
pub(crate) trait ReadAhead: Send + Sync {
    /// Starts to read ahead.
    fn start(self: Arc<Self>);

    /// Stops, once it was called as often as [`ReadAhead::start`].
    fn stop(&self);
}

/// Has a response read ahead until it is dropped.
pub(crate) struct Wanted(Arc<dyn ReadAhead>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.stop();
    }
}
