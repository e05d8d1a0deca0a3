//! Prefixes and the replicas that have them cached, as far as this client can know: where it and
//! its partners sent them, and how much was computed there since.
//!
//! An engine evicts the least recently used blocks. A prefix is assumed to be cached while fewer
//! tokens were added since than the memory holds. Each mark records the replica's count of computed
//! tokens when the prefix was sent. The count includes other clients' calls if the replica reports
//! its lookups and hits.
//!
//! At most [`MAX_PREFIXES`] prefixes are kept. The least recently used ones are dropped first. Each
//! has marks of at most [`MAX_REPLICAS`] caches.

use std::hash::{BuildHasherDefault, Hasher};

use lru::LruCache;

use super::MAX_REPLICAS;

/// Maximum number of prefixes and sessions that are remembered.
const MAX_PREFIXES: usize = 32_768;

/// The prefix cache of one engine process. A restarted replica has another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EngineCache {
    /// Identifies the cache among those of all replicas and processes.
    pub(super) name: u64,
    /// Number of tokens computed so far, which were added to the cache.
    pub(super) filled: u64,
    /// Size in tokens, or `None` if it is not known. An unknown cache is assumed to evict nothing.
    pub(super) capacity: Option<u64>,
}

/// A record that a prefix was sent to a cache.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Name of the cache.
    cache: u64,
    /// [`EngineCache::filled`] when the prefix was sent.
    filled: u64,
    /// Length of the prompt up to the end of the prefix, in tokens.
    tokens: u64,
    /// Number of the first call that sent the prefix to the cache, not counting calls before the
    /// prefix was last evicted.
    by: u64,
}

impl Mark {
    /// Returns `true` if the prefix is assumed to be in this cache still.
    fn is_in(&self, cache: &EngineCache) -> bool {
        let added = cache.filled.saturating_sub(self.filled);
        self.cache == cache.name && cache.capacity.is_none_or(|capacity| added < capacity)
    }
}

/// A map from hashes to values that can drop the least recently used ones.
pub(super) type HashLru<V> = LruCache<u64, V, BuildHasherDefault<IdentityHasher>>;

/// The prefixes that this client sent, by hash, with the caches that each was sent to.
#[derive(Clone, Debug)]
pub(super) struct PrefixCache(HashLru<Vec<Mark>>);

impl PrefixCache {
    pub(super) fn new() -> Self {
        // Bounded by hand, because a bounded cache would allocate all of its memory at once.
        Self(HashLru::unbounded_with_hasher(Default::default()))
    }

    /// For each cache in `caches` that has the value 0, sets the value to the number of tokens that
    /// the cache holds of a prompt with these prefixes.
    ///
    /// `prefixes` are hashes, the shortest prefix first. `tokens` returns the prompt tokens up to
    /// the end of the prefix at an index.
    pub(super) fn find_cached(
        &self,
        prefixes: &[u64],
        tokens: impl Fn(usize) -> u64,
        caches: &mut [(EngineCache, u64)],
    ) {
        for (index, hash) in prefixes.iter().enumerate().rev() {
            if caches.iter().all(|(_, cached)| *cached > 0) {
                return;
            }
            let Some(marks) = self.0.peek(hash) else { continue };
            for (cache, cached) in caches.iter_mut().filter(|(_, cached)| *cached == 0) {
                if marks.iter().any(|mark| mark.is_in(cache)) {
                    *cached = tokens(index).max(1);
                }
            }
        }
    }

    /// Returns how many tokens of a session are in a cache: the prompt length of the session's last
    /// call that was sent to the cache, or 0 if none is assumed to be cached.
    pub(super) fn session_tokens(&self, session: u64, cache: &EngineCache) -> u64 {
        let mut marks = self.0.peek(&session).into_iter().flatten();
        marks.find(|mark| mark.is_in(cache)).map_or(0, |mark| mark.tokens)
    }

    /// Records that a prompt with the prefix was sent to a cache by the call numbered `by`.
    /// `tokens` is the length of the prompt up to the end of the prefix.
    pub(super) fn insert(&mut self, prefix: u64, cache: &EngineCache, tokens: u64, by: u64) {
        let mark = Mark { cache: cache.name, filled: cache.filled, tokens, by };
        let marks = self.0.get_or_insert_mut(prefix, || Vec::with_capacity(1));
        match marks.iter_mut().find(|known| known.cache == cache.name) {
            // The first call that sent the prefix is kept: the prefix is cached whatever becomes of
            // this call.
            Some(known) if known.is_in(cache) => *known = Mark { by: known.by, ..mark },
            Some(known) => *known = mark,
            None => {
                // The oldest caches are those of replicas that have left or restarted.
                if marks.len() >= MAX_REPLICAS {
                    marks.remove(0);
                }
                marks.push(mark);
            }
        }
        if self.0.len() > MAX_PREFIXES {
            self.0.pop_lru();
        }
    }

    /// Removes the record of a prefix in a cache if it was inserted by the call numbered `by`,
    /// because that call never ran.
    pub(super) fn remove(&mut self, prefix: u64, cache: u64, by: u64) {
        if let Some(marks) = self.0.peek_mut(&prefix) {
            marks.retain(|mark| mark.cache != cache || mark.by != by);
        }
    }

    /// Removes all prefixes of a cache.
    pub(super) fn clear(&mut self, cache: u64) {
        self.0.iter_mut().for_each(|(_, marks)| marks.retain(|mark| mark.cache != cache));
    }
}

/// A hasher for keys that are hashes already: returns a `u64` key unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| super::rendezvous::mix(hash ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: u64, filled: u64) -> EngineCache {
        EngineCache { name, filled, capacity: Some(1_000) }
    }

    fn known(memory: &PrefixCache, prefixes: &[u64], cache: EngineCache) -> u64 {
        let mut caches = [(cache, 0)];
        memory.find_cached(prefixes, |index| 100 * (index as u64 + 1), &mut caches);
        caches[0].1
    }

    #[test]
    fn longest_cached_prefix_counts() {
        let mut memory = PrefixCache::new();
        for (index, hash) in [11, 12, 13].into_iter().enumerate() {
            memory.insert(hash, &cache(1, 0), 100 * (index as u64 + 1), 1);
        }
        assert_eq!(known(&memory, &[11, 12, 13, 14], cache(1, 300)), 300);
        assert_eq!(known(&memory, &[11, 12, 99], cache(1, 300)), 200);
        assert_eq!(known(&memory, &[11, 12, 13], cache(2, 0)), 0, "another's");
        assert_eq!(known(&memory, &[11, 12, 13], cache(1, 1_000)), 0, "as much came upon it as it holds");
        memory.insert(11, &cache(1, 900), 100, 2);
        assert_eq!(known(&memory, &[11, 12, 13], cache(1, 1_000)), 100, "and that was used since");
        memory.clear(1);
        assert_eq!(known(&memory, &[11], cache(1, 900)), 0);
    }

    #[test]
    fn prefixes_of_calls_that_never_ran_are_removed() {
        let mut memory = PrefixCache::new();
        memory.insert(11, &cache(1, 0), 100, 1);
        memory.insert(11, &cache(1, 0), 100, 2);
        memory.insert(12, &cache(1, 0), 200, 2);
        [11, 12].iter().for_each(|hash| memory.remove(*hash, 1, 2));
        assert_eq!(known(&memory, &[11, 12], cache(1, 0)), 100, "the first had brought it there");
    }

    #[test]
    fn number_of_prefixes_is_bounded() {
        let mut memory = PrefixCache::new();
        (0..2 * MAX_PREFIXES as u64).for_each(|hash| memory.insert(hash, &cache(1, 0), 1, 1));
        assert_eq!(memory.0.len(), MAX_PREFIXES);
        assert_eq!(known(&memory, &[0], cache(1, 0)), 0);
        assert_eq!(known(&memory, &[2 * MAX_PREFIXES as u64 - 1], cache(1, 0)), 100);
    }

    #[test]
    fn number_of_caches_of_a_prefix_is_bounded() {
        let mut memory = PrefixCache::new();
        (0..=MAX_REPLICAS as u64).for_each(|name| memory.insert(11, &cache(name, 0), 100, 1));
        assert_eq!(memory.session_tokens(11, &cache(0, 0)), 0, "the oldest");
        assert_eq!(memory.session_tokens(11, &cache(1, 0)), 100);
    }
}
