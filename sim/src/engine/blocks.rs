//! The paged KV cache, counted in blocks, and which of them a coming prompt could use again.
//!
//! Sequences that share a beginning share its full blocks, as with vLLM's automatic prefix caching. A block is known by a hash of all tokens up to its end, which
//! the caller gives. It is cached from when it is full until its room is needed: as long as a sequence holds it it stays; after that it is *idle*, counts as free,
//! and is evicted when no other free block is left, least recently used first. A sequence gives its blocks back last first, so that of a beginning the end goes first.
//!
//! # Invariants
//!
//! - Every block is held by sequences, idle or empty, and exactly one of these.
//! - A block that a sequence holds is never evicted; one that several hold is counted once.
//! - Of a sequence's cached blocks, which are the first ones of it, none is missing while it holds them.
//!
//! Two sequences that compute the same block at the same time hold one of it from when it is full; vLLM keeps both. vLLM also takes idle blocks before empty ones
//! that were freed later.

use std::collections::{BTreeMap, HashMap};

/// A pool of equal KV blocks. Which block holds what does not change a step's time, so blocks without a hash are only counted.
#[derive(Debug, Clone)]
pub struct BlockPool {
    total: u32,
    /// Blocks that hold nothing.
    empty: u32,
    block_size: u32,
    /// By hash. Only ever asked for one, so that its order cannot matter.
    cached: HashMap<u64, Cached>,
    /// Cached blocks that no sequence holds, by when they were given back.
    idle: BTreeMap<u64, u64>,
    /// Blocks ever given back.
    returned: u64,
}

/// A block that is known by its hash.
#[derive(Debug, Clone, Copy)]
enum Cached {
    /// By so many sequences.
    Held(u32),
    /// Its model_path in [`BlockPool::idle`].
    Idle(u64),
}

/// The blocks of one sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockTable {
    /// Hashes of its blocks, as far as they are told; the first `cached` of them are in the cache.
    hashes: Box<[u64]>,
    held: u32,
    cached: u32,
}

impl BlockTable {
    pub(super) fn new(hashes: &[u64]) -> Self {
        Self { hashes: hashes.into(), held: 0, cached: 0 }
    }
}

impl BlockPool {
    pub(super) fn new(total: u32, block_size: u32) -> Self {
        let (cached, idle) = (HashMap::new(), BTreeMap::new());
        Self { total, empty: total, block_size: block_size.max(1), cached, idle, returned: 0 }
    }

    /// How many of a sequence's first `tokens` are cached, in whole blocks.
    pub(super) fn find(&self, table: &BlockTable, tokens: u32) -> u32 {
        self.cached_blocks(&table.hashes, tokens) * self.block_size
    }

    fn cached_blocks(&self, hashes: &[u64], tokens: u32) -> u32 {
        let whole = (tokens / self.block_size) as usize;
        hashes.iter().take(whole).take_while(|hash| self.cached.contains_key(hash)).count() as u32
    }

    /// Gives a table that holds nothing the `found` tokens of [`BlockPool::find`] and as many new blocks as `tokens` need beside them; false, giving nothing, when too
    /// few are free.
    pub(super) fn open(&mut self, table: &mut BlockTable, found: u32, tokens: u32) -> bool {
        let shared = found / self.block_size;
        let hashes = table.hashes.get(..shared as usize).unwrap_or_default();
        let idle =
            hashes.iter().filter(|hash| matches!(self.cached.get(hash), Some(Cached::Idle(_)))).count();
        let need = tokens.div_ceil(self.block_size).saturating_sub(shared);
        if self.free().saturating_sub(idle as u32) < need {
            return false;
        }
        hashes.iter().for_each(|hash| self.hold(*hash));
        (table.held, table.cached) = (shared, shared);
        self.grow(table, tokens)
    }

    /// Raises a holding to what `tokens` need, and caches the blocks that these fill; false, giving nothing, when too few are free.
    pub(super) fn grow(&mut self, table: &mut BlockTable, tokens: u32) -> bool {
        let need = tokens.div_ceil(self.block_size).saturating_sub(table.held);
        if need > self.free() {
            return false;
        }
        while self.empty < need {
            self.evict();
        }
        self.empty -= need;
        table.held += need;
        let full = (tokens / self.block_size) as usize;
        let new = table.hashes.get(table.cached as usize..full.min(table.hashes.len())).unwrap_or_default();
        for hash in new {
            // Of a block that is known already its own copy is not needed.
            self.empty += u32::from(self.cached.contains_key(hash));
            self.hold(*hash);
        }
        table.cached += new.len() as u32;
        true
    }

    /// Takes back all that a sequence holds.
    pub(super) fn close(&mut self, table: &mut BlockTable) {
        let cached = table.hashes.get(..table.cached as usize).unwrap_or_default();
        self.empty += table.held - table.cached;
        for hash in cached.iter().rev() {
            let Some(block) = self.cached.get_mut(hash) else { continue };
            match block {
                Cached::Held(by) if *by > 1 => *by -= 1,
                _ => {
                    self.returned += 1;
                    *block = Cached::Idle(self.returned);
                    self.idle.insert(self.returned, *hash);
                }
            }
        }
        (table.held, table.cached) = (0, 0);
        debug_assert!(self.free() <= self.total, "a block was freed twice");
    }

    /// One more sequence holds it.
    fn hold(&mut self, hash: u64) {
        let block = self.cached.entry(hash).or_insert(Cached::Held(0));
        match block {
            Cached::Held(by) => *by += 1,
            Cached::Idle(since) => {
                self.idle.remove(since);
                *block = Cached::Held(1);
            }
        }
    }

    fn evict(&mut self) {
        let Some((_, hash)) = self.idle.pop_first() else { return };
        self.cached.remove(&hash);
        self.empty += 1;
    }

    fn free(&self) -> u32 {
        self.empty + self.idle.len() as u32
    }

    /// How many tokens of a prompt of that length would not have to be computed if it came now: whole blocks, and never all of it.
    pub fn prefix(&self, hashes: &[u64], prompt_tokens: u32) -> u32 {
        self.cached_blocks(hashes, prompt_tokens.saturating_sub(1)) * self.block_size
    }

    /// All blocks.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Blocks held by running sequences.
    pub fn used(&self) -> u32 {
        self.total - self.free()
    }

    /// Blocks that no sequence holds, but whose content could be used again.
    pub fn idle(&self) -> u32 {
        self.idle.len() as u32
    }

    /// Tokens that one block holds.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Tokens that the whole cache holds.
    pub fn capacity_tokens(&self) -> u64 {
        u64::from(self.total) * u64::from(self.block_size)
    }

    /// Share of blocks held, 0 to 1 (vLLM's `kv_cache_usage_perc`).
    pub fn usage(&self) -> f64 {
        if self.total == 0 { 0.0 } else { f64::from(self.used()) / f64::from(self.total) }
    }
}

#[cfg(test)]
mod tests;
