//! A bounded map that forgets the least recently learned key.

use std::hash::{BuildHasher, Hash, RandomState};

use lru::LruCache;

/// Keys are stored as hashes, so that the names of a million tenants take no memory. The hash is
/// keyed, so that nobody can choose colliding names. Colliding keys share what is learned.
#[derive(Debug)]
pub(super) struct Recent<V> {
    hasher: RandomState,
    most: usize,
    values: LruCache<u64, V>,
}

impl<V: Default> Recent<V> {
    pub(super) fn new(most: usize) -> Self {
        // The bound is enforced here, because a bounded cache would allocate memory for all entries
        // at once.
        Self { hasher: RandomState::new(), most, values: LruCache::unbounded() }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: impl Hash) -> Option<&V> {
        self.values.peek(&self.hasher.hash_one(key))
    }

    /// Returns the value of a key for learning, and marks it as the most recent.
    pub(super) fn entry(&mut self, key: impl Hash) -> &mut V {
        let key = self.hasher.hash_one(key);
        if self.values.len() >= self.most && !self.values.contains(&key) {
            self.values.pop_lru();
        }
        self.values.get_or_insert_mut(key, V::default)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}
