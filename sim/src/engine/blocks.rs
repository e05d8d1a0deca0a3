//! The paged KV cache, counted in blocks.

/// A pool of equal KV blocks. Which block holds what does not change a step's time, so only their number is
/// kept.
#[derive(Debug, Clone)]
pub struct BlockPool {
    total: u32,
    free: u32,
    block_size: u32,
}

impl BlockPool {
    pub(super) fn new(total: u32, block_size: u32) -> Self {
        Self { total, free: total, block_size: block_size.max(1) }
    }

    /// Raises a holding from `held` blocks to what `tokens` need; `None`, taking nothing, when too few are
    /// free.
    pub(super) fn grow(&mut self, held: u32, tokens: u32) -> Option<u32> {
        let need = tokens.div_ceil(self.block_size).max(held);
        self.free = self.free.checked_sub(need - held)?;
        Some(need)
    }

    pub(super) fn free(&mut self, blocks: u32) {
        self.free += blocks;
        debug_assert!(self.free <= self.total, "a block was freed twice");
    }

    /// All blocks.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Blocks held by running sequences.
    pub fn used(&self) -> u32 {
        self.total - self.free
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
