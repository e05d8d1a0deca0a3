//! A set of replicas, by their places in the pool's table.

use crate::config::MAX_REPLICAS;

/// The most replicas that a pool can have: a set of them is two words, copied and compared where calls are.
pub const MOST: usize = MAX_REPLICAS;

/// Some of a pool's replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaSet([u64; 2]);

impl ReplicaSet {
    /// None of them.
    pub const NONE: Self = Self([0; 2]);
    /// All that there can be.
    pub const ALL: Self = Self([u64::MAX; 2]);

    /// One of them.
    pub fn one(at: usize) -> Self {
        let mut places = Self::NONE;
        places.insert(at);
        places
    }

    /// Adds a replica. One beyond [`MOST`] is not taken in.
    pub fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Takes a replica out.
    pub fn remove(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Whether it is one of them.
    pub fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// Those of either.
    pub fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// Those of both.
    pub fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    /// Those that are not of the other.
    pub fn less(self, other: Self) -> Self {
        Self([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 2]
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..2).flat_map(move |word| {
            let mut left = self.0[word];
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

impl FromIterator<usize> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = usize>>(all: I) -> Self {
        let mut places = Self::NONE;
        all.into_iter().for_each(|at| places.insert(at));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: ReplicaSet = [0, 63, 64, 127, 128].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 127], "there are no more than {MOST}");
        assert_eq!(set.len(), 4);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(4_000));
        let mut less = set.less(ReplicaSet::one(64));
        assert_eq!(less.iter().collect::<Vec<_>>(), [0, 63, 127]);
        less.remove(0);
        assert_eq!(less.or(ReplicaSet::one(5)).and(set), less);
        assert!(ReplicaSet::NONE.is_empty() && !ReplicaSet::ALL.is_empty());
        assert_eq!(ReplicaSet::ALL.len(), MOST);
    }
}
