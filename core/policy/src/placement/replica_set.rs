//! Sets of replicas, by their indices in the pool's table.

use tidegate_config::MAX_REPLICAS;

/// The maximum number of replicas of a pool. A set is two machine words, because sets are copied
/// and compared for every call.
pub const MOST: usize = MAX_REPLICAS;

/// A set of a pool's replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaSet([u64; 2]);

impl ReplicaSet {
    /// The empty set.
    pub const NONE: Self = Self([0; 2]);
    /// The set of all indices.
    pub const ALL: Self = Self([u64::MAX; 2]);

    /// Returns a set of one replica.
    pub fn one(at: usize) -> Self {
        let mut places = Self::NONE;
        places.insert(at);
        places
    }

    /// Adds a replica. An index beyond [`MOST`] is ignored.
    pub fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Removes a replica.
    pub fn remove(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Returns `true` if the replica is in the set.
    pub fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// Returns the union.
    pub fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// Returns the intersection.
    pub fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    /// Returns the replicas that are not in the other set.
    pub fn less(self, other: Self) -> Self {
        Self([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    /// Returns the set itself, or the other set if this one is empty.
    pub fn or_if_empty(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }

    /// Returns `true` if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 2]
    }

    /// Returns the number of replicas.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the replicas in ascending order.
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
