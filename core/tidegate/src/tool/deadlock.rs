//! Deadlock detection for tools: finds waits that can never end.
//!
//! The algorithm is a graph reduction for resources with several units (Coffman, Elphick, Shoshani:
//! System Deadlocks, 1971). A holder that waits for nothing will release its slots. Therefore a
//! wait can end if one slot of its tool has a holder that does not wait, or a holder whose waits
//! can all end. Such waits are removed until no more can be removed. The remaining waits are a
//! deadlock.
//!
//! A wait is checked before it begins. It is checked again while it lasts, because the adaptive
//! limit of a tool may fall, so that the end of a holder frees no slot.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The tool slots that are held, by tool, and the waits of tasks that hold at least one tool slot.
/// Slots and waits are identified by numbers.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: HashMap<Arc<str>, HashSet<u64>>,
    waits: BTreeMap<u64, Waiting>,
    next: u64,
}

/// A wait for a slot of `tool` by a task that holds the tool slots `holds`.
#[derive(Debug)]
struct Waiting {
    tool: String,
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

    /// Records that the task that holds the slots `holds` waits for a slot of `tool`. Returns the
    /// number of the wait, for [`Holdings::check_wait`] and [`Holdings::end_wait`]. `limit_of`
    /// returns the number of slots of a tool that are in force.
    ///
    /// # Errors
    ///
    /// As for [`Holdings::check_wait`].
    pub(super) fn begin_wait(
        &mut self,
        tool: &str,
        holds: Vec<u64>,
        limit_of: impl Fn(&str) -> usize,
    ) -> Result<u64, Vec<String>> {
        let id = self.next;
        self.next += 1;
        self.waits.insert(id, Waiting { tool: tool.to_owned(), holds });
        self.check_wait(id, limit_of).map(|()| id)
    }

    /// Checks that the wait with this number can end. `limit_of` as for [`Holdings::begin_wait`].
    ///
    /// # Errors
    ///
    /// If the wait can never end, returns the names of all tools in the deadlock, in alphabetical
    /// order. The wait is then not recorded any more.
    pub(super) fn check_wait(
        &mut self,
        id: u64,
        limit_of: impl Fn(&str) -> usize,
    ) -> Result<(), Vec<String>> {
        let deadlocked = self.deadlocked(limit_of);
        if !deadlocked.contains(&id) {
            return Ok(());
        }
        let waits = deadlocked.iter().filter_map(|wait| self.waits.get(wait));
        let tools: BTreeSet<String> = waits.map(|waiting| waiting.tool.clone()).collect();
        self.waits.remove(&id);
        Err(tools.into_iter().collect())
    }

    /// Removes the wait with this number, because it has ended.
    pub(super) fn end_wait(&mut self, id: u64) {
        self.waits.remove(&id);
    }

    /// Returns the numbers of the waits that can never end. `limit_of` as for
    /// [`Holdings::begin_wait`].
    fn deadlocked(&self, limit_of: impl Fn(&str) -> usize) -> HashSet<u64> {
        let slots_of = |waiting: &Waiting| self.held.get(waiting.tool.as_str());
        // Otherwise a slot is free or is being handed over, so that only the rate of the tool
        // delays the wait, or other processes hold slots, which they will release.
        let is_full =
            |waiting: &Waiting| slots_of(waiting).is_some_and(|slots| slots.len() >= limit_of(&waiting.tool));
        // Reading a limit locks the tool, and many waits may be for the same tool.
        let mut full_tools: HashMap<&str, bool> = HashMap::new();
        let full = self.waits.iter().filter(|(_, waiting)| {
            *full_tools.entry(waiting.tool.as_str()).or_insert_with(|| is_full(waiting))
        });
        let mut deadlocked: HashSet<u64> = full.map(|(id, _)| *id).collect();
        loop {
            let before = deadlocked.len();
            let blocked: HashSet<u64> = self
                .waits
                .iter()
                .filter(|(id, _)| deadlocked.contains(id))
                .flat_map(|(_, waiting)| waiting.holds.iter().copied())
                .collect();
            deadlocked.retain(|id| {
                let slots = self.waits.get(id).and_then(slots_of);
                slots.is_some_and(|slots| slots.iter().all(|slot| blocked.contains(slot)))
            });
            if deadlocked.len() == before {
                return deadlocked;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn limit_of_a_tool_is_read_once_for_all_waits() {
        let (mut holdings, reads) = (Holdings::default(), Cell::new(0));
        let limit_of = |_: &str| {
            reads.set(reads.get() + 1);
            1
        };
        holdings.on_acquired(&"db".into(), 0);
        let waits = [1, 2, 3].map(|slot| holdings.begin_wait("db", vec![slot], limit_of).expect("it ends"));
        reads.set(0);
        assert_eq!((holdings.check_wait(waits[0], limit_of), reads.get()), (Ok(()), 1));
    }
}
