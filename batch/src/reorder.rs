//! Restores the order of items that complete in another order.

use std::collections::BTreeMap;

/// Holds completed items, numbered from 0, until all items with lower numbers have completed.
#[derive(Debug)]
pub struct ReorderBuffer<T> {
    next: u64,
    buffered: BTreeMap<u64, T>,
}

impl<T> Default for ReorderBuffer<T> {
    fn default() -> Self {
        Self { next: 0, buffered: BTreeMap::new() }
    }
}

impl<T> ReorderBuffer<T> {
    /// Adds the completed item with this number. Calls `release`, in order, with each item that has
    /// not been released yet and whose predecessors have all completed.
    pub fn push(&mut self, number: u64, item: T, mut release: impl FnMut(T)) {
        self.buffered.insert(number, item);
        while let Some(item) = self.buffered.remove(&self.next) {
            self.next += 1;
            release(item);
        }
    }

    /// Removes and returns, in order, the items that have completed but were not released.
    pub fn take_buffered(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.buffered).into_values()
    }

    /// Returns the number of items that have completed but were not released.
    pub fn buffered(&self) -> usize {
        self.buffered.len()
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
                ordered.push(number, number, |number| out.push(number));
            }
            prop_assert_eq!(&out, &(0..50).collect::<Vec<_>>());
            prop_assert_eq!(ordered.buffered(), 0);
            ordered.push(60, 60, |number| out.push(number));
            ordered.push(55, 55, |number| out.push(number));
            prop_assert_eq!(ordered.take_buffered().collect::<Vec<_>>(), [55, 60]);
            prop_assert_eq!((out.len(), ordered.buffered()), (50, 0));
        }
    }
}
