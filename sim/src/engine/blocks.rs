//! The paged KV cache, counted in blocks, with a prefix cache.
//!
//! Sequences with a common prefix share its full blocks, as in vLLM's automatic prefix caching. The
//! caller identifies a block by a hash of all tokens up to its end. A block is cached once it is
//! full. While a sequence holds a cached block, the block stays. Afterwards the block is *idle*: it
//! counts as free, and is evicted, least recently used first, when no empty block is left. A
//! sequence returns its blocks last to first, so the end of a prefix is evicted first.
//!
//! # Invariants
//!
//! - Every block is in exactly one state: held by sequences, idle, or empty.
//! - A held block is never evicted, and is counted once even if several sequences hold it.
//! - The cached blocks of a sequence are its first blocks, and none is missing while the sequence
//!   holds them.
//!
//! Two differences from vLLM: if two sequences compute the same block at the same time, they share
//! one copy once it is full, whereas vLLM keeps both; and vLLM reuses idle blocks before empty
//! blocks that were freed later.

use std::collections::{BTreeMap, HashMap};

/// A pool of equal KV blocks. Blocks without a hash are only counted, because their content does
/// not affect the time of a step.
#[derive(Debug, Clone)]
pub struct BlockPool {
    total: u32,
    /// Number of blocks without content.
    empty: u32,
    block_size: u32,
    /// Cached blocks by hash. Only looked up by key, so iteration order cannot matter.
    cached: HashMap<u64, Cached>,
    /// Idle blocks: hash by the order in which they were returned.
    idle: BTreeMap<u64, u64>,
    /// Number of blocks returned so far, for the order of [`BlockPool::idle`].
    returned: u64,
}

/// State of a cached block.
#[derive(Debug, Clone, Copy)]
enum Cached {
    /// Held by this number of sequences.
    Held(u32),
    /// Idle, with its key in [`BlockPool::idle`].
    Idle(u64),
}

/// The blocks of one sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockTable {
    /// Hashes of the blocks, as far as they are known. The first `cached` of them are in the cache.
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

    /// Returns how many of the first `tokens` tokens of a sequence are cached, in whole blocks.
    pub(super) fn find(&self, table: &BlockTable, tokens: u32) -> u32 {
        self.cached_blocks(&table.hashes, tokens) * self.block_size
    }

    fn cached_blocks(&self, hashes: &[u64], tokens: u32) -> u32 {
        let whole = (tokens / self.block_size) as usize;
        hashes.iter().take(whole).take_while(|hash| self.cached.contains_key(hash)).count() as u32
    }

    /// Gives an empty table the `found` tokens of [`BlockPool::find`] and new blocks for the rest
    /// of `tokens`.
    ///
    /// Returns `false` and changes nothing if too few blocks are free.
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

    /// Grows a table to hold `tokens` tokens, and caches the blocks that become full.
    ///
    /// Returns `false` and changes nothing if too few blocks are free.
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
            // The block is already cached, so the sequence's own copy is freed.
            self.empty += u32::from(self.cached.contains_key(hash));
            self.hold(*hash);
        }
        table.cached += new.len() as u32;
        true
    }

    /// Frees all blocks of a sequence.
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

    /// Adds a sequence to the holders of a block.
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

    /// Returns how many tokens of such a prompt would not be computed if it arrived now: whole
    /// blocks, and never the whole prompt.
    pub fn prefix(&self, hashes: &[u64], prompt_tokens: u32) -> u32 {
        self.cached_blocks(hashes, prompt_tokens.saturating_sub(1)) * self.block_size
    }

    /// Returns the total number of blocks.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of blocks held by running sequences.
    pub fn used(&self) -> u32 {
        self.total - self.free()
    }

    /// Returns the number of blocks that no sequence holds and whose content can be reused.
    pub fn idle(&self) -> u32 {
        self.idle.len() as u32
    }

    /// Returns the number of tokens per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Returns the capacity of the cache, in tokens.
    pub fn capacity_tokens(&self) -> u64 {
        u64::from(self.total) * u64::from(self.block_size)
    }

    /// Returns the share of blocks in use, 0 to 1 (vLLM's `kv_cache_usage_perc`).
    pub fn usage(&self) -> f64 {
        if self.total == 0 { 0.0 } else { f64::from(self.used()) / f64::from(self.total) }
    }
}

#[cfg(test)]
mod tests;
