//! Restores the order in which items began.

use std::collections::BTreeMap;

/// Buffers items, numbered from 0, until all earlier items have been released.
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
    /// Adds a completed item, and passes every item whose turn has come to `hand`.
    pub fn put(&mut self, number: u64, thing: T, mut hand: impl FnMut(T)) {
        self.early.insert(number, thing);
        while let Some(thing) = self.early.remove(&self.next) {
            self.next += 1;
            hand(thing);
        }
    }

    /// Returns the number of buffered items.
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
