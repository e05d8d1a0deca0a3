//! Which replicas calls ask for. Calls that ask for the same ones are of one kind, known by a number: so a queue of a hundred thousand is searched by what a few
//! kinds have room for.

use std::collections::HashMap;

use crate::placement::ReplicaSet;

/// So many kinds are remembered that nobody who waits is of.
const REMEMBERED: usize = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct CallClasses {
    /// With how many who wait are of each.
    table: Vec<Option<(ReplicaSet, usize)>>,
    free: Vec<usize>,
    numbers: HashMap<ReplicaSet, usize>,
    /// How many make it worth looking for those to forget.
    many: usize,
}

impl CallClasses {
    /// The number of that kind. It stays its number while somebody of it waits, and until others are asked for.
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

    /// One more of that kind waits.
    pub(super) fn on_enqueue(&mut self, number: usize) {
        if let Some((_, waiting)) = self.table.get_mut(number).and_then(Option::as_mut) {
            *waiting += 1;
        }
    }

    /// One fewer.
    pub(super) fn on_dequeue(&mut self, number: usize) {
        if let Some((_, waiting)) = self.table.get_mut(number).and_then(Option::as_mut) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Each, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<ReplicaSet>> {
        self.table.iter().map(|known| known.map(|(places, _)| places))
    }

    /// How many calls wait, of all kinds.
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
    fn a_kind_that_nobody_waits_of_is_forgotten_and_another_keeps_its_number() {
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
