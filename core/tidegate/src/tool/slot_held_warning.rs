//! The model slots that a task holds while it waits for a tool: releases those of streaming
//! responses if the caller allows it, and warns about the others.
//!
//! A slot that stays held is idle during the wait. Two tasks that acquire the same tool and model
//! slot in opposite orders can wait for each other forever.

use std::collections::{BTreeSet, HashSet};
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::admission::{ReadAheadGuard, TaskSlot, TaskSlots};
use crate::context::TaskId;
use crate::metrics::{HeldSlotUse, ToolMetrics};

/// Maximum number of source locations for which a warning is logged, once for each location. Limits
/// the memory for these locations.
const MAX_WARNED_SITES: usize = 1024;

/// The model slots that a task keeps while it waits for a tool, from
/// [`PendingToolPermit::while_holding`](crate::PendingToolPermit::while_holding). Slots that may be
/// released during the wait are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSlots {
    tool: Arc<str>,
    targets: BTreeSet<Arc<str>>,
    /// `true` if [`Gate::acquire_tool_yielding`](crate::Gate::acquire_tool_yielding) could have
    /// released all of the slots. `false` if one of them is a [`Slot`](crate::Slot), which it
    /// cannot release.
    streams: bool,
}

impl HeldSlots {
    /// Returns the name of the tool that the task waits for.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the names of the targets whose slots are held, in alphabetical order.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|target| &**target)
    }

    /// Returns the text of a warning that states the problem and its remedy. `option` is how the
    /// caller's language spells the option that releases the slots during the wait, for example
    /// `yield_slot=True`. Equal values have the same text.
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

/// The model slots that a task holds when it requests a tool.
pub(super) struct HeldModelSlots {
    slots: Vec<TaskSlot>,
    yield_slot: bool,
}

impl HeldModelSlots {
    /// Returns the model slots that `task` holds now. Empty if `task` is `None`. If `yield_slot` is
    /// `true`, the slots of streaming responses may be released while the task waits for the tool
    /// and holds it.
    pub(super) fn new(task_slots: &TaskSlots, task: Option<TaskId>, yield_slot: bool) -> Self {
        Self { slots: task.map(|task| task_slots.held_by(task)).unwrap_or_default(), yield_slot }
    }

    /// Counts each of the slots in the metrics of the tool. `waits` is `true` if the task has to
    /// wait for the tool, and `false` if it gets the tool without waiting.
    pub(super) fn count(&self, metrics: &ToolMetrics, waits: bool) {
        for slot in &self.slots {
            let how = match (self.is_yielded(slot), waits) {
                (true, _) => HeldSlotUse::Yielded,
                (false, true) => HeldSlotUse::Waited,
                (false, false) => HeldSlotUse::Got,
            };
            metrics.on_request_while_held(&slot.target, how);
        }
    }

    /// Starts to read the responses of the slots that may be released early into memory. Reading
    /// ahead stops when the returned guards are dropped.
    pub(super) fn release_yielded(&self) -> Vec<ReadAheadGuard> {
        let handed = self.slots.iter().filter(|slot| self.is_yielded(slot));
        handed.filter_map(|slot| slot.read_ahead()).collect()
    }

    /// Returns the slots that stay in use while the task waits for `tool`. `None` if there are
    /// none.
    pub(super) fn idle(&self, tool: &Arc<str>) -> Option<HeldSlots> {
        let idle: Vec<_> = self.slots.iter().filter(|slot| !self.is_yielded(slot)).collect();
        (!idle.is_empty()).then(|| HeldSlots {
            tool: tool.clone(),
            targets: idle.iter().map(|slot| slot.target.clone()).collect(),
            streams: idle.iter().all(|slot| slot.is_stream()),
        })
    }

    /// Returns `true` if the slot may be released while the task waits for the tool and holds it:
    /// the caller allowed it, and the slot belongs to a streaming response.
    fn is_yielded(&self, slot: &TaskSlot) -> bool {
        self.yield_slot && slot.is_stream()
    }
}

/// The source locations for which a warning about a held slot has been logged.
#[derive(Default)]
pub(super) struct WarnedSites(Mutex<HashSet<&'static Location<'static>>>);

impl WarnedSites {
    /// Logs a warning about `held` for the source location `site`. Does nothing if a warning was
    /// logged for this location before, or if [`MAX_WARNED_SITES`] locations have one.
    pub(super) fn warn_once(&self, site: &'static Location<'static>, held: &HeldSlots) {
        let mut warned = self.0.lock();
        let is_first = warned.len() < MAX_WARNED_SITES && warned.insert(site);
        drop(warned);
        if is_first {
            tracing::warn!(%site, tool = %held.tool, "{}", held.advice("Gate::acquire_tool_yielding"));
        }
    }
}
