//! Records which model slots each task holds. When a task requests a tool, the gate looks up
//! whether the task holds a model slot while it waits.
//!
//! A slot is recorded only if tools are configured, and only from the response of its call until
//! the slot is released. Before the response, the task awaits its call and cannot request a tool.
//! So there are never more records than slots in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::context::TaskId;

/// The model slots that the tasks of a gate hold, by task.
#[derive(Default)]
pub(crate) struct TaskSlots(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// The slots that each task holds. Tasks without slots have no entry.
    held: HashMap<TaskId, Vec<TaskSlot>>,
    /// The number that the next recorded slot gets ([`TaskSlot::number`]).
    next: u64,
}

/// A model slot that a task holds.
#[derive(Clone)]
pub(crate) struct TaskSlot {
    /// Number of the recorded slot, unique in its [`TaskSlots`].
    number: u64,
    /// Name of the target that the slot belongs to.
    pub(crate) target: Arc<str>,
    /// The response that holds the slot. `None` if the response cannot be read ahead
    /// ([`ReadAhead`]).
    response: Option<Weak<dyn ReadAhead>>,
}

impl TaskSlots {
    /// Records that `task` holds a slot of `target`, until the returned guard is dropped.
    /// `response` is the response that holds the slot, or `None` if the response cannot be read
    /// ahead.
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
    /// Starts to buffer the rest of the response that holds the slot, until the returned guard is
    /// dropped. Returns `None` if the response is gone or cannot be read ahead.
    pub(crate) fn read_ahead(&self) -> Option<ReadAheadGuard> {
        let response = self.response.as_ref()?.upgrade()?;
        response.clone().start();
        Some(ReadAheadGuard(response))
    }

    /// Returns `true` if a response that can be read ahead holds the slot. `false` for a
    /// [`Slot`](crate::Slot), which no response holds.
    pub(crate) fn is_stream(&self) -> bool {
        self.response.is_some()
    }
}

/// Removes the record of a slot when it is dropped.
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

/// A response that can be read into memory before its reader asks for the data, so that its slot is
/// released earlier.
pub(crate) trait ReadAhead: Send + Sync {
    /// Starts to read ahead. May be called several times; each call must be paired with one call of
    /// [`ReadAhead::stop`].
    fn start(self: Arc<Self>);

    /// Undoes one call of [`ReadAhead::start`]. Reading ahead stops when all calls are undone.
    fn stop(&self);
}

/// Calls [`ReadAhead::stop`] when it is dropped.
pub(crate) struct ReadAheadGuard(Arc<dyn ReadAhead>);

impl Drop for ReadAheadGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}
