//! The slots of targets that tasks hold, looked up when a task asks for a tool.
//!
//! Entries exist only if tools are configured, and only from the response of a call until its slot
//! is released. Before that, the task waits for its call and cannot ask for a tool. So there are
//! never more entries than slots in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::context::TaskId;

/// The slots that the tasks of a gate hold.
#[derive(Default)]
pub(crate) struct TaskSlots(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    held: HashMap<TaskId, Vec<TaskSlot>>,
    next: u64,
}

/// A slot that a task holds.
#[derive(Clone)]
pub(crate) struct TaskSlot {
    number: u64,
    pub(crate) target: Arc<str>,
    response: Option<Weak<dyn ReadAhead>>,
}

impl TaskSlots {
    /// Adds a slot that a task holds, until the returned guard is dropped. `response` is the
    /// response that holds the slot, if it can be read ahead.
    pub(crate) fn enter(
        self: &Arc<Self>,
        task: TaskId,
        target: &Arc<str>,
        response: Option<Weak<dyn ReadAhead>>,
    ) -> TaskSlotGuard {
        let mut entries = self.0.lock();
        let number = entries.next;
        entries.next += 1;
        entries.held.entry(task).or_default().push(TaskSlot { number, target: target.clone(), response });
        TaskSlotGuard { slots: self.clone(), task, number }
    }

    /// Returns the slots that the task holds now.
    pub(crate) fn held_by(&self, task: TaskId) -> Vec<TaskSlot> {
        self.0.lock().held.get(&task).cloned().unwrap_or_default()
    }
}

impl TaskSlot {
    /// Starts to read the rest of the response ahead, until the returned guard is dropped. Returns
    /// `None` if nothing is left to read.
    pub(crate) fn read_ahead(&self) -> Option<ReadAheadGuard> {
        let response = self.response.as_ref()?.upgrade()?;
        response.clone().start();
        Some(ReadAheadGuard(response))
    }

    /// Returns `true` if a response that can be read ahead holds the slot.
    pub(crate) fn is_stream(&self) -> bool {
        self.response.is_some()
    }
}

/// Keeps the entry of a slot until it is dropped.
pub(crate) struct TaskSlotGuard {
    slots: Arc<TaskSlots>,
    task: TaskId,
    number: u64,
}

impl Drop for TaskSlotGuard {
    fn drop(&mut self) {
        let mut entries = self.slots.0.lock();
        if let Some(held) = entries.held.get_mut(&self.task) {
            held.retain(|slot| slot.number != self.number);
            if held.is_empty() {
                entries.held.remove(&self.task);
            }
        }
    }
}

/// A response that can be read ahead of its reader, so that its slot is released earlier.
pub(crate) trait ReadAhead: Send + Sync {
    /// Starts to read ahead.
    fn start(self: Arc<Self>);

    /// Stops reading ahead when it has been called as often as [`ReadAhead::start`].
    fn stop(&self);
}

/// Keeps a response being read ahead until dropped.
pub(crate) struct ReadAheadGuard(Arc<dyn ReadAhead>);

impl Drop for ReadAheadGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}
