//! A bounded map that drops the entry that was updated the longest time ago.

use std::hash::{BuildHasher, Hash, RandomState};

use lru::LruCache;

/// A bounded map whose keys are stored as 64-bit hashes.
///
/// Hashes take less memory than the names of tenants. They are keyed at random, so clients cannot
/// choose names that collide. Two keys that collide share one value.
#[derive(Debug)]
pub(super) struct LruMap<V> {
    hasher: RandomState,
    capacity: usize,
    values: LruCache<u64, V>,
}

impl<V: Default> LruMap<V> {
    /// Creates a map of at most `capacity` entries.
    pub(super) fn new(capacity: usize) -> Self {
        // The cache itself is unbounded, because a bounded one allocates memory for all entries at
        // once. `entry` enforces the bound.
        Self { hasher: RandomState::new(), capacity, values: LruCache::unbounded() }
    }

    /// Returns the value of a key without marking it as recently used. `None` if there is none.
    pub(super) fn get(&self, key: impl Hash) -> Option<&V> {
        self.values.peek(&self.hasher.hash_one(key))
    }

    /// Returns the value of a key for an update, and marks it as the most recently used. Creates a
    /// default value if there is none; if the map is full, drops the least recently used entry.
    pub(super) fn entry(&mut self, key: impl Hash) -> &mut V {
        let key = self.hasher.hash_one(key);
        if self.values.len() >= self.capacity && !self.values.contains(&key) {
            self.values.pop_lru();
        }
        self.values.get_or_insert_mut(key, V::default)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}
