//! The paged KV cache, counted in blocks, with a prefix cache.
//!
//! Sequences with a common prefix share its full blocks, as in vLLM's automatic prefix caching. The
//! caller identifies a block by a hash of all tokens up to its end. A block is *cached*, which
//! means that it can be found by its hash, once it is full. A sequence *holds* a block from its
//! allocation until the sequence ends or is preempted. A cached block that no sequence holds is
//! *idle*: it counts as free, and is evicted, least recently used first, when no *empty* block is
//! left. A sequence releases its blocks from last to first, so the end of a prefix is evicted
//! first.
//!
//! # Invariants
//!
//! - Every block is in exactly one state: held by sequences, idle, or empty.
//! - A held block is never evicted, and is counted once even if several sequences hold it.
//! - The cached blocks of a sequence are its first blocks, and none is missing while the sequence
//!   holds them.
//!
//! There are two differences from vLLM. If two sequences compute the same block at the same time,
//! they share one copy once it is full, whereas vLLM keeps both. And vLLM reuses idle blocks before
//! empty blocks that were freed later.

use std::collections::{BTreeMap, HashMap};

/// The KV blocks of one engine. All blocks have the same size. A block without a hash is only
/// counted, because its content does not affect the time of a step.
#[derive(Debug, Clone)]
pub struct BlockPool {
    total: u32,
    /// Number of blocks that no sequence holds and whose content is not cached.
    empty: u32,
    block_size: u32,
    /// Cached blocks by hash. The map is never iterated, so its order cannot affect a run.
    cached: HashMap<u64, Cached>,
    /// Hashes of the idle blocks. The key is the value of `returned` when the block became idle, so
    /// the first entry is evicted first.
    idle: BTreeMap<u64, u64>,
    /// Number of times that a block became idle so far.
    returned: u64,
}

/// State of a cached block.
#[derive(Debug, Clone, Copy)]
enum Cached {
    /// The number of sequences that hold the block, at least 1.
    Held(u32),
    /// No sequence holds the block. The value is its key in [`BlockPool::idle`].
    Idle(u64),
}

/// The blocks that one sequence holds.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockTable {
    /// Hashes of the sequence's first blocks, as far as the caller knows them. The first `cached`
    /// of them are in [`BlockPool::cached`].
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

    /// Returns how many of the sequence's first `tokens` tokens are cached. Only whole blocks
    /// count, and only up to the first block that is not cached.
    pub(super) fn cached_tokens(&self, table: &BlockTable, tokens: u32) -> u32 {
        self.cached_blocks(&table.hashes, tokens) * self.block_size
    }

    fn cached_blocks(&self, hashes: &[u64], tokens: u32) -> u32 {
        let whole = (tokens / self.block_size) as usize;
        hashes.iter().take(whole).take_while(|hash| self.cached.contains_key(hash)).count() as u32
    }

    /// Allocates blocks for the first `tokens` tokens of a sequence that holds no block. The first
    /// `found` of them are in cached blocks, as [`BlockPool::cached_tokens`] returned, which the
    /// sequence then shares.
    ///
    /// Returns `false` and changes nothing if too few blocks are free for all `known` tokens of the
    /// sequence, of which `tokens` are the first.
    pub(super) fn allocate(&mut self, table: &mut BlockTable, found: u32, tokens: u32, known: u32) -> bool {
        let shared = found / self.block_size;
        let hashes = table.hashes.get(..shared as usize).unwrap_or_default();
        let idle =
            hashes.iter().filter(|hash| matches!(self.cached.get(hash), Some(Cached::Idle(_)))).count();
        let need = known.div_ceil(self.block_size).saturating_sub(shared);
        if self.free().saturating_sub(idle as u32) < need {
            return false;
        }
        hashes.iter().for_each(|hash| self.add_holder(*hash));
        (table.held, table.cached) = (shared, shared);
        self.grow(table, tokens)
    }

    /// Allocates blocks so that the sequence can store `tokens` tokens in total, and caches the
    /// blocks with a known hash that are full then.
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
            self.add_holder(*hash);
        }
        table.cached += new.len() as u32;
        true
    }

    /// Releases all blocks of a sequence. Cached blocks that no other sequence holds become idle.
    pub(super) fn release(&mut self, table: &mut BlockTable) {
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

    /// Counts one more sequence that holds the cached block with this hash. Adds the block to the
    /// cache if it is not there.
    fn add_holder(&mut self, hash: u64) {
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

    /// Returns how many tokens of a prompt with these block hashes would be taken from the cache if
    /// it arrived now. These are whole blocks, and never all `prompt_tokens`, because the last
    /// token must be computed.
    pub fn prefix(&self, hashes: &[u64], prompt_tokens: u32) -> u32 {
        self.cached_blocks(hashes, prompt_tokens.saturating_sub(1)) * self.block_size
    }

    /// Returns the number of blocks, free or not.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of blocks that running sequences hold.
    pub fn used(&self) -> u32 {
        self.total - self.free()
    }

    /// Returns the number of cached blocks that no sequence holds.
    pub fn idle(&self) -> u32 {
        self.idle.len() as u32
    }

    /// Returns the number of tokens in a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Returns the number of tokens that fit into all blocks.
    pub fn capacity_tokens(&self) -> u64 {
        u64::from(self.total) * u64::from(self.block_size)
    }

    /// Returns the share of blocks that running sequences hold, from 0 to 1, as vLLM's
    /// `kv_cache_usage_perc`. Returns 0 if there are no blocks.
    pub fn usage(&self) -> f64 {
        if self.total == 0 { 0.0 } else { f64::from(self.used()) / f64::from(self.total) }
    }
}

#[cfg(test)]
mod tests;
