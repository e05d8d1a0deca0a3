//! Notices a task that asks for a tool while it holds a model slot: that slot idles for as long as the tool takes, and two such tasks that meet
//! in different orders wait for each other for ever.

use std::collections::{BTreeSet, HashSet};
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::admission::{ReadAheadGuard, TaskSlot, TaskSlots};
use crate::context::TaskId;
use crate::observe::{HeldHow, ToolMetrics};

/// So many places in a program are told of their fault, each once.
const MOST_SITES: usize = 1024;

/// The model slots that a task held when it asked for a tool and had to wait for it, and does not hand back meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSlots {
    tool: Arc<str>,
    targets: BTreeSet<Arc<str>>,
    /// Whether they could be handed back: `gate.slot` cannot.
    streams: bool,
}

impl HeldSlots {
    /// The tool that is waited for.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whose slots are held, by name.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|target| &**target)
    }

    /// What it means, and what to do about it. `option` is how the caller's language spells `yield_slot`. Says the same each time.
    pub fn advice(&self, option: &str) -> String {
        let (tool, held) = (&self.tool, join(&self.targets));
        let first = format!(
            "this task waits for the tool {tool} while it holds a slot of {held}: the slot idles meanwhile, and a task that holds {tool} and \
             calls {held} waits for this one."
        );
        let streams = "Read the response to its end or close it before asking for the tool";
        if self.streams {
            format!(
                "{first} {streams}, ask for the tool before the call, or hand the slot back meanwhile: {option}"
            )
        } else {
            format!("{first} Give the slot back before asking for the tool, or ask for the tool first")
        }
    }
}

fn join(names: &BTreeSet<Arc<str>>) -> String {
    names.iter().map(|name| &**name).collect::<Vec<_>>().join(" and ")
}

/// What a task held when it asked.
pub(super) struct WhileHeld {
    slots: Vec<TaskSlot>,
    yield_slot: bool,
}

impl WhileHeld {
    pub(super) fn look(task_slots: &TaskSlots, task: Option<TaskId>, yield_slot: bool) -> Self {
        Self { slots: task.map(|task| task_slots.held_by(task)).unwrap_or_default(), yield_slot }
    }

    /// Counts each slot once for each time that a tool was asked for.
    pub(super) fn count(&self, metrics: &ToolMetrics, waits: bool) {
        for slot in &self.slots {
            let how = match (self.hands_back(slot), waits) {
                (true, _) => HeldHow::Yielded,
                (false, true) => HeldHow::Waited,
                (false, false) => HeldHow::Got,
            };
            metrics.asked_while_held(&slot.target, how);
        }
    }

    /// Begins to hand the slots back, where that was asked for.
    pub(super) fn hand_back(&self) -> Vec<ReadAheadGuard> {
        let handed = self.slots.iter().filter(|slot| self.hands_back(slot));
        handed.filter_map(|slot| slot.read_ahead()).collect()
    }

    /// What idles while the tool is waited for.
    pub(super) fn idle(&self, tool: &Arc<str>) -> Option<HeldSlots> {
        let idle: Vec<_> = self.slots.iter().filter(|slot| !self.hands_back(slot)).collect();
        (!idle.is_empty()).then(|| HeldSlots {
            tool: tool.clone(),
            targets: idle.iter().map(|slot| slot.target.clone()).collect(),
            streams: idle.iter().all(|slot| slot.is_stream()),
        })
    }

    fn hands_back(&self, slot: &TaskSlot) -> bool {
        self.yield_slot && slot.is_stream()
    }
}

/// The places that were told.
#[derive(Default)]
pub(super) struct Told(Mutex<HashSet<&'static Location<'static>>>);

impl Told {
    /// Warns the code there, the first time.
    pub(super) fn tell(&self, site: &'static Location<'static>, held: &HeldSlots) {
        let mut told = self.0.lock();
        let first = told.len() < MOST_SITES && told.insert(site);
        drop(told);
        if first {
            tracing::warn!(%site, tool = %held.tool, "{}", held.advice("Gate::acquire_tool_yielding"));
        }
    }
}
