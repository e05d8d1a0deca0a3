//! A bounded map that drops the entry that was updated the longest time ago.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::RandomState;
use lru::LruCache;

/// A map of at most `CAPACITY` entries whose keys are stored as 64-bit hashes.
///
/// Hashes take less memory than the names of tenants. They are keyed at random, so clients cannot
/// choose names that collide. Two keys that collide share one value.
#[derive(Debug)]
pub(super) struct LruMap<V, const CAPACITY: usize> {
    hasher: RandomState,
    values: LruCache<u64, V>,
}

impl<V, const CAPACITY: usize> Default for LruMap<V, CAPACITY> {
    fn default() -> Self {
        // The cache itself is unbounded, because a bounded one allocates memory for all entries at
        // once. `LruMap::entry` enforces the bound.
        Self { hasher: RandomState::default(), values: LruCache::unbounded() }
    }
}

impl<V: Default, const CAPACITY: usize> LruMap<V, CAPACITY> {
    /// Returns the value of a key without marking it as recently used. `None` if there is none.
    pub(super) fn get(&self, key: impl Hash) -> Option<&V> {
        self.values.peek(&self.hasher.hash_one(key))
    }

    /// Returns the value of a key for an update, and marks it as the most recently used. Creates a
    /// default value if there is none; if the map is full, drops the least recently used entry.
    pub(super) fn entry(&mut self, key: impl Hash) -> &mut V {
        let key = self.hasher.hash_one(key);
        if self.values.len() >= CAPACITY && !self.values.contains(&key) {
            self.values.pop_lru();
        }
        self.values.get_or_insert_mut(key, V::default)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}
