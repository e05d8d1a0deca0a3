//! Sets of replicas, by their indices in the pool's table.

use tidegate_config::MAX_REPLICAS;

/// A set of a pool's replicas, one bit for each index. Two machine words, because sets are copied
/// and compared for every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaSet(u128);

impl ReplicaSet {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The set of all indices.
    pub const ALL: Self = Self(u128::MAX);

    /// Returns a set of one replica, or the empty set if the index is not below [`MAX_REPLICAS`].
    pub fn one(index: usize) -> Self {
        if index < MAX_REPLICAS { Self(1 << index) } else { Self::NONE }
    }

    /// Adds a replica. An index that is not below [`MAX_REPLICAS`] is ignored.
    pub fn insert(&mut self, index: usize) {
        *self = self.or(Self::one(index));
    }

    /// Removes a replica, if the set contains it.
    pub fn remove(&mut self, index: usize) {
        *self = self.less(Self::one(index));
    }

    /// Returns `true` if the replica is in the set.
    pub fn contains(&self, index: usize) -> bool {
        !self.and(Self::one(index)).is_empty()
    }

    /// Returns the union: the replicas that are in either set.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection: the replicas that are in both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the difference: the replicas of this set that are not in `other`.
    pub fn less(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns this set, or `other` if this set is empty.
    pub(crate) fn or_if_empty(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }

    /// Returns `true` if the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the number of replicas in the set.
    pub fn len(&self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the indices of the replicas in ascending order.
    pub fn iter(mut self) -> impl Iterator<Item = usize> {
        std::iter::from_fn(move || {
            let index = (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)?;
            self.0 &= self.0 - 1;
            Some(index)
        })
    }
}

impl FromIterator<usize> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        indices.into_iter().fold(Self::NONE, |set, index| set.or(Self::one(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_the_inserted_indices() {
        let set: ReplicaSet = [0, 63, 64, 127, 128].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 127], "there are no more than {MAX_REPLICAS}");
        assert_eq!(set.len(), 4);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(4_000));
        let mut less = set.less(ReplicaSet::one(64));
        assert_eq!(less.iter().collect::<Vec<_>>(), [0, 63, 127]);
        less.remove(0);
        assert_eq!(less.or(ReplicaSet::one(5)).and(set), less);
        assert!(ReplicaSet::NONE.is_empty() && !ReplicaSet::ALL.is_empty());
        assert_eq!(ReplicaSet::ALL.len(), MAX_REPLICAS);
    }
}
