//! Puts what ends in any order into the order in which it began.

use std::collections::BTreeMap;

/// Things that were numbered from 0 on when they began.
#[derive(Debug)]
pub struct ReorderBuffer<T> {
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for ReorderBuffer<T> {
    fn default() -> Self {
        Self { next: 0, early: BTreeMap::new() }
    }
}

impl<T> ReorderBuffer<T> {
    /// Takes one that has ended, and hands on all whose turn it is.
    pub fn put(&mut self, number: u64, thing: T, mut hand: impl FnMut(T)) {
        self.early.insert(number, thing);
        while let Some(thing) = self.early.remove(&self.next) {
            self.next += 1;
            hand(thing);
        }
    }

    /// How many have ended before their turn.
    pub fn early(&self) -> usize {
        self.early.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn releases_each_item_once_and_in_order(order in Just((0..50u64).collect::<Vec<_>>()).prop_shuffle()) {
            let (mut ordered, mut out) = (ReorderBuffer::default(), Vec::new());
            for number in order {
                ordered.put(number, number, |number| out.push(number));
            }
            prop_assert_eq!(out, (0..50).collect::<Vec<_>>());
            prop_assert_eq!(ordered.early(), 0);
        }
    }
}
