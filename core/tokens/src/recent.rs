//! A map of bounded size, in which whatever was learned of last the longest ago makes room.

use std::hash::{BuildHasher, Hash, RandomState};

use lru::LruCache;

/// Keys are kept as their hash alone, so that the names of a million tenants take no memory; the hash is keyed, so that nobody can choose names that
/// meet. Should two ever do, they share what is learned of them.
pub(super) struct Recent<V> {
    hasher: RandomState,
    most: usize,
    values: LruCache<u64, V>,
}

impl<V: Default> Recent<V> {
    pub(super) fn new(most: usize) -> Self {
        // Unbounded, and bounded here: with a bound of its own it takes the memory for all of them at once.
        Self { hasher: RandomState::new(), most, values: LruCache::unbounded() }
    }

    /// What is known of this.
    pub(super) fn get(&self, key: impl Hash) -> Option<&V> {
        self.values.peek(&self.hasher.hash_one(key))
    }

    /// The same, to learn more: the last to be forgotten from now on.
    pub(super) fn entry(&mut self, key: impl Hash) -> &mut V {
        let key = self.hasher.hash_one(key);
        if self.values.len() >= self.most && !self.values.contains(&key) {
            self.values.pop_lru();
        }
        self.values.get_or_insert_mut(key, V::default)
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}
