//! Classes of calls at a pool. Calls that the same replicas may take are of one class, which has a
//! number.
//!
//! A search among many waiting calls therefore compares available resources for each class, not for
//! each call and replica.

use std::collections::HashMap;

use slab::Slab;

use crate::placement::ReplicaSet;
use crate::schedule::CallClass;

/// While there are fewer classes than this, classes without waiting calls are kept for reuse.
const MIN_BEFORE_DROP: usize = 64;

/// The classes of calls at a pool. See [the module](self).
#[derive(Debug, Default)]
pub(super) struct CallClasses {
    /// For each number, the replicas that may take calls of the class, and the number of waiting
    /// calls.
    table: Slab<(ReplicaSet, usize)>,
    /// The number of the class for each set of replicas.
    numbers: HashMap<ReplicaSet, usize>,
    /// Classes without waiting calls are dropped when a class is added and there are at least this
    /// many, or [`MIN_BEFORE_DROP`] if that is greater.
    drop_at: usize,
}

impl CallClasses {
    /// Returns the number of the class of calls that these replicas may take. It stays the same as
    /// long as a call of the class waits.
    pub(super) fn number(&mut self, replicas: ReplicaSet) -> u32 {
        if let Some(number) = self.numbers.get(&replicas) {
            return *number as u32;
        }
        if self.table.len() >= self.drop_at.max(MIN_BEFORE_DROP) {
            self.forget();
        }
        let number = self.table.insert((replicas, 0));
        self.numbers.insert(replicas, number);
        number as u32
    }

    /// Returns the replicas of a class, or `None` if the number is not in use.
    pub(super) fn get(&self, number: usize) -> Option<ReplicaSet> {
        self.table.get(number).map(|(replicas, _)| *replicas)
    }

    /// Returns the counter of the waiting calls of a class, which the caller updates. Returns
    /// `None` if the class is not known or if `class` stands for several classes.
    pub(super) fn waiting_mut(&mut self, class: CallClass) -> Option<&mut usize> {
        self.table.get_mut(class.number()?).map(|(_, waiting)| waiting)
    }

    /// Returns the replicas of the classes in the order of their numbers, with `None` for each
    /// number that is not in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<ReplicaSet>> {
        let end = self.table.iter().next_back().map_or(0, |(last, _)| last + 1);
        (0..end).map(|number| self.get(number))
    }

    /// Returns the number of waiting calls of all classes together.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.table.iter().map(|(_, (_, waiting))| waiting).sum()
    }

    /// Drops the classes without waiting calls.
    fn forget(&mut self) {
        let Self { table, numbers, drop_at } = self;
        table.retain(|_, (replicas, waiting)| *waiting > 0 || numbers.remove(replicas).is_none());
        *drop_at = 2 * numbers.len();
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
        let count = |classes: &mut CallClasses, waiting| {
            *classes.waiting_mut(CallClass::new(kept)).expect("known") = waiting;
        };
        count(&mut classes, 1);
        for at in 0..128 {
            let number = classes.number(of(at));
            assert_eq!(classes.get(number as usize), Some(of(at)));
        }
        assert_eq!(classes.number(of(3)), kept);
        assert!(classes.table.len() <= MIN_BEFORE_DROP + 1, "{}", classes.table.len());
        count(&mut classes, 0);
        assert_eq!(classes.waiting(), 0);
    }
}
