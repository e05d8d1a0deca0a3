//! Deadlock detection for tools: finds waits that can never end.
//!
//! The algorithm is a graph reduction for resources with several units (Coffman, Elphick, Shoshani:
//! System Deadlocks, 1971). A holder that waits for nothing will release its slots. Therefore a
//! wait can end if one slot of its tool has a holder that does not wait, or a holder whose waits
//! can all end. Such waits are removed until no more can be removed. The remaining waits are a
//! deadlock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The tool slots that are held, by tool, and the waits of tasks that hold at least one tool slot.
/// Slots and waits are identified by numbers.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: HashMap<Arc<str>, HashSet<u64>>,
    waits: BTreeMap<u64, Waiting>,
    next: u64,
}

/// A wait for a slot of `tool`, which has `cap` slots, by a task that holds the tool slots `holds`.
#[derive(Debug)]
struct Waiting {
    tool: String,
    cap: usize,
    holds: Vec<u64>,
}

impl Holdings {
    /// Records that the slot number `slot`, a slot of `tool`, was acquired.
    pub(super) fn on_acquired(&mut self, tool: &Arc<str>, slot: u64) {
        self.held.entry(tool.clone()).or_default().insert(slot);
    }

    /// Records that the slot number `slot`, a slot of `tool`, was released.
    pub(super) fn on_released(&mut self, tool: &Arc<str>, slot: u64) {
        if let Some(slots) = self.held.get_mut(tool) {
            slots.remove(&slot);
        }
    }

    /// Records that the task that holds the slots `holds` waits for a slot of `tool`, which has `cap`
    /// slots. Returns the number of the wait, for [`Holdings::end_wait`].
    ///
    /// # Errors
    ///
    /// If the wait could never end, returns the names of all tools in the deadlock, in alphabetical
    /// order. The wait is then not recorded.
    pub(super) fn begin_wait(&mut self, tool: &str, cap: usize, holds: Vec<u64>) -> Result<u64, Vec<String>> {
        let id = self.next;
        self.next += 1;
        self.waits.insert(id, Waiting { tool: tool.to_owned(), cap, holds });
        let deadlocked = self.deadlocked();
        if !deadlocked.contains(&id) {
            return Ok(id);
        }
        self.waits.remove(&id);
        let tools =
            deadlocked.iter().filter_map(|other| self.waits.get(other)).map(|waiting| waiting.tool.clone());
        let tools: std::collections::BTreeSet<_> = tools.chain([tool.to_owned()]).collect();
        Err(tools.into_iter().collect())
    }

    /// Removes the wait with this number, because it has ended.
    pub(super) fn end_wait(&mut self, id: u64) {
        self.waits.remove(&id);
    }

    /// Returns the numbers of the waits that can never end.
    fn deadlocked(&self) -> HashSet<u64> {
        let mut deadlocked: HashSet<u64> = self.waits.keys().copied().collect();
        loop {
            let before = deadlocked.len();
            let blocked: HashSet<u64> = self
                .waits
                .iter()
                .filter(|(id, _)| deadlocked.contains(id))
                .flat_map(|(_, waiting)| waiting.holds.iter().copied())
                .collect();
            deadlocked.retain(|id| {
                let Some(waiting) = self.waits.get(id) else { return false };
                let slots = self.held.get(waiting.tool.as_str());
                // Otherwise a slot is free or is being handed over, so that only the rate of the tool
                // delays the wait, or other processes hold slots, which they will release.
                let is_full = |slots: &&HashSet<u64>| slots.len() >= waiting.cap;
                slots.filter(is_full).is_some_and(|slots| slots.iter().all(|slot| blocked.contains(slot)))
            });
            if deadlocked.len() == before {
                return deadlocked;
            }
        }
    }
}
