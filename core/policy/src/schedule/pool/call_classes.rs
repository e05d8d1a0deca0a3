//! Classes of calls: calls that the same replicas may take are of one class, identified by a
//! number.
//!
//! A queue of 100,000 calls is searched by what a few classes have room for.

use std::collections::HashMap;

use crate::placement::ReplicaSet;

/// Classes without waiting calls that are kept.
const REMEMBERED: usize = 64;

/// The classes. See [the module](self).
#[derive(Debug, Default)]
pub(super) struct CallClasses {
    /// By number: the replicas, and the number of waiting calls.
    table: Vec<Option<(ReplicaSet, usize)>>,
    free: Vec<usize>,
    numbers: HashMap<ReplicaSet, usize>,
    /// The number of classes from which unused ones are dropped.
    many: usize,
}

impl CallClasses {
    /// Returns the number of the class, which stays the same while a call of the class waits.
    pub(super) fn number(&mut self, places: ReplicaSet) -> u32 {
        if let Some(number) = self.numbers.get(&places) {
            return *number as u32;
        }
        if self.free.is_empty() && self.table.len() >= self.many.max(REMEMBERED) {
            self.forget();
        }
        let known = Some((places, 0));
        let number = match self.free.pop() {
            Some(free) => {
                if let Some(place) = self.table.get_mut(free) {
                    *place = known;
                }
                free
            }
            None => {
                self.table.push(known);
                self.table.len() - 1
            }
        };
        self.numbers.insert(places, number);
        number as u32
    }

    pub(super) fn get(&self, number: usize) -> Option<ReplicaSet> {
        self.table.get(number).copied().flatten().map(|(places, _)| places)
    }

    /// Records that a call of the class waits.
    pub(super) fn on_enqueue(&mut self, number: usize) {
        if let Some((_, waiting)) = self.table.get_mut(number).and_then(Option::as_mut) {
            *waiting += 1;
        }
    }

    /// Records that a call of the class has left the queue.
    pub(super) fn on_dequeue(&mut self, number: usize) {
        if let Some((_, waiting)) = self.table.get_mut(number).and_then(Option::as_mut) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Returns all classes in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<ReplicaSet>> {
        self.table.iter().map(|known| known.map(|(places, _)| places))
    }

    /// Returns the number of waiting calls of all classes.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.table.iter().flatten().map(|(_, waiting)| waiting).sum()
    }

    fn forget(&mut self) {
        let Self { table, free, numbers, many } = self;
        for (number, known) in table.iter_mut().enumerate() {
            if let Some((places, _)) = known.take_if(|(_, waiting)| *waiting == 0) {
                numbers.remove(&places);
                free.push(number);
            }
        }
        *many = 2 * numbers.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_class_is_dropped_and_a_used_one_keeps_its_number() {
        let mut classes = CallClasses::default();
        let of = ReplicaSet::one;
        let kept = classes.number(of(3));
        classes.on_enqueue(kept as usize);
        for at in 0..128 {
            let number = classes.number(of(at));
            assert_eq!(classes.get(number as usize), Some(of(at)));
        }
        assert_eq!(classes.number(of(3)), kept);
        assert!(classes.table.len() <= REMEMBERED + 1, "{}", classes.table.len());
        classes.on_dequeue(kept as usize);
        assert_eq!(classes.waiting(), 0);
    }
}
