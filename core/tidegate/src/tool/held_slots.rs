//! Detects tasks that wait for a tool while they hold a model slot.
//!
//! The model slot is unused during the wait. Two such tasks that acquire a tool and a model slot in
//! opposite orders wait for each other forever.

use std::collections::{BTreeSet, HashSet};
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::admission::{ReadAheadGuard, TaskSlot, TaskSlots};
use crate::context::TaskId;
use crate::metrics::{HeldSlotUse, ToolMetrics};

/// The largest number of source locations that are warned about. Each is warned about once.
const MAX_WARNED_SITES: usize = 1024;

/// The model slots that a task keeps while it waits for a tool. Slots that are released during the
/// wait are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSlots {
    tool: Arc<str>,
    targets: BTreeSet<Arc<str>>,
    /// Whether `yield_slot` could release them during the wait. Slots from `gate.slot` cannot be
    /// released that way.
    streams: bool,
}

impl HeldSlots {
    /// Returns the name of the tool that the task waits for.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the names of the targets whose slots are held, in order.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|target| &**target)
    }

    /// Returns a warning that states the problem and its remedy. `option` is the spelling of
    /// `yield_slot` in the caller's language. The text is the same for equal values.
    pub fn advice(&self, option: &str) -> String {
        let (tool, held) = (&self.tool, self.targets().collect::<Vec<_>>().join(" and "));
        let first = format!(
            "this task waits for the tool {tool} while it holds a slot of {held}: the slot is idle meanwhile, and a task that holds {tool} and \
             calls {held} waits for this task."
        );
        let streams = "Read the response to its end or close it before requesting the tool";
        if self.streams {
            format!(
                "{first} {streams}, request the tool before the call, or release the slot during the wait: {option}"
            )
        } else {
            format!("{first} Release the slot before requesting the tool, or request the tool first")
        }
    }
}

/// The model slots that a task held when it asked for a tool.
pub(super) struct HeldModelSlots {
    slots: Vec<TaskSlot>,
    yield_slot: bool,
}

impl HeldModelSlots {
    /// Returns the model slots that `task` holds now; none if the task is unknown.
    pub(super) fn new(task_slots: &TaskSlots, task: Option<TaskId>, yield_slot: bool) -> Self {
        Self { slots: task.map(|task| task_slots.held_by(task)).unwrap_or_default(), yield_slot }
    }

    /// Counts each slot once per request for a tool. `waits`: whether the task has to wait.
    pub(super) fn count(&self, metrics: &ToolMetrics, waits: bool) {
        for slot in &self.slots {
            let how = match (self.is_yielded(slot), waits) {
                (true, _) => HeldSlotUse::Yielded,
                (false, true) => HeldSlotUse::Waited,
                (false, false) => HeldSlotUse::Got,
            };
            metrics.asked_while_held(&slot.target, how);
        }
    }

    /// Releases the slots that `yield_slot` allows to release, until the guards are dropped.
    pub(super) fn release_yielded(&self) -> Vec<ReadAheadGuard> {
        let handed = self.slots.iter().filter(|slot| self.is_yielded(slot));
        handed.filter_map(|slot| slot.read_ahead()).collect()
    }

    /// Returns the slots that the task keeps while it waits, or `None` if there are none.
    pub(super) fn idle(&self, tool: &Arc<str>) -> Option<HeldSlots> {
        let idle: Vec<_> = self.slots.iter().filter(|slot| !self.is_yielded(slot)).collect();
        (!idle.is_empty()).then(|| HeldSlots {
            tool: tool.clone(),
            targets: idle.iter().map(|slot| slot.target.clone()).collect(),
            streams: idle.iter().all(|slot| slot.is_stream()),
        })
    }

    /// Returns `true` if the slot is released while the task holds the tool.
    fn is_yielded(&self, slot: &TaskSlot) -> bool {
        self.yield_slot && slot.is_stream()
    }
}

/// The source locations that have been warned about.
#[derive(Default)]
pub(super) struct WarnedSites(Mutex<HashSet<&'static Location<'static>>>);

impl WarnedSites {
    /// Logs a warning for the source location, if it is the first one.
    pub(super) fn warn_once(&self, site: &'static Location<'static>, held: &HeldSlots) {
        let mut warned = self.0.lock();
        let is_first = warned.len() < MAX_WARNED_SITES && warned.insert(site);
        drop(warned);
        if is_first {
            tracing::warn!(%site, tool = %held.tool, "{}", held.advice("Gate::acquire_tool_yielding"));
        }
    }
}
