//! The slots that tasks hold, which are looked up when a task asks for a tool.
//!
//! A slot has an entry only if tools are configured, and only from the response of its call until
//! the slot is released. Before the response, the task waits for the call and cannot ask for a
//! tool. So there are never more entries than slots in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::context::TaskId;

/// The slots that the tasks of a gate hold.
#[derive(Default)]
pub(crate) struct TaskSlots(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// The slots that each task holds. Tasks without slots have no entry.
    held: HashMap<TaskId, Vec<TaskSlot>>,
    /// The number of the next entry.
    next: u64,
}

/// A slot that a task holds.
#[derive(Clone)]
pub(crate) struct TaskSlot {
    /// Number of the entry, unique in its [`TaskSlots`].
    number: u64,
    /// Name of the target that the slot belongs to.
    pub(crate) target: Arc<str>,
    /// The response that holds the slot. `None` if it cannot be read ahead.
    response: Option<Weak<dyn ReadAhead>>,
}

impl TaskSlots {
    /// Adds a slot of `target` that a task holds, until the returned guard is dropped. `response`
    /// is the response that holds the slot. `None` if it cannot be read ahead.
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
    /// Reads the rest of the response ahead until the returned guard is dropped. Returns `None` if
    /// no response that can be read ahead holds the slot.
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

/// Keeps the entry of a slot until dropped.
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
    /// Starts to read ahead. May be called several times.
    fn start(self: Arc<Self>);

    /// Undoes one call of [`ReadAhead::start`]. Stops reading ahead after the last of them.
    fn stop(&self);
}

/// Keeps a response being read ahead until dropped.
pub(crate) struct ReadAheadGuard(Arc<dyn ReadAhead>);

impl Drop for ReadAheadGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}
