//! One vLLM engine. Pure: no clock, no I/O.
//!
//! Time advances in *steps* (forward passes). At the start of a step, the scheduler selects tokens
//! to compute as vLLM V1 does: first the running sequences, in order of admission, then the waiting
//! queue, first come first served, both within one token budget (a long prompt is *chunked* over
//! several steps). Each token needs space in a paged KV cache. If a running sequence finds none,
//! the last admitted sequence is *preempted*: it loses its blocks, returns to the front of the
//! queue, and is recomputed, prompt and generated tokens alike. At the end of the step, each
//! sequence whose last known token was computed gains one token.
//!
//! With [`EngineConfig::prefix_cache`], full blocks outlive their sequences. A later sequence with
//! the same prefix does not compute them again, except its last token. [`BlockPool`] describes
//! caching and eviction.
//!
//! # Invariants
//!
//! - Blocks in use never exceed the pool, and all blocks are free when no sequence is left.
//! - Every submitted sequence ends exactly once: with [`EventKind::Finished`], or with
//!   [`Engine::abort`] returning `true`.
//! - An abort frees the batch place and the blocks of a sequence at once, also during a step or in
//!   the queue. (vLLM processes aborts between steps.)
//! - Time is the `Duration` since a fixed start. The caller passes it, and it never decreases. The
//!   same calls give the same events.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_sim::engine::{Engine, EngineConfig, EventKind, SequenceId};
//!
//! let mut engine = Engine::new(EngineConfig::default());
//! engine.submit(Duration::ZERO, SequenceId(1), 512, 2)?;
//! let mut events = Vec::new();
//! while let Some(at) = engine.next_event() {
//!     engine.advance(at, &mut events);
//! }
//! assert_eq!(events.last().map(|e| e.kind), Some(EventKind::Finished));
//! # Ok::<(), tidegate_sim::engine::TooLong>(())
//! ```

mod blocks;
mod config;
mod event;
mod schedule;
mod sequence;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::blocks::BlockPool;
use self::blocks::BlockTable;
pub use self::config::{EngineConfig, StepCost};
pub use self::event::{EngineEvent, EventKind, SequenceId, TooLong};
use self::sequence::Sequence;

/// One engine (in vLLM, an engine core): see the [module](self).
#[derive(Debug, Clone)]
pub struct Engine {
    config: EngineConfig,
    blocks: BlockPool,
    /// Waiting sequences, first come first served. Preempted sequences return to the front.
    waiting: VecDeque<Sequence>,
    /// Running sequences in order of admission. The last one is preempted first.
    running: Vec<Sequence>,
    /// End time of the current step.
    step_ends: Option<Duration>,
    /// Factor on the time of every step. 1 is the calibrated speed.
    slowdown: f64,
    /// Events from the start of a step, reported by the next [`Engine::advance`].
    pending: Vec<EngineEvent>,
    totals: Totals,
}

/// Counters of an engine since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Steps begun.
    pub steps: u64,
    /// Prompt tokens computed, including recomputed tokens.
    pub prefill_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Sequences that lost their blocks to an older sequence.
    pub preemptions: u64,
    /// Maximum number of KV blocks in use at the same time.
    pub peak_blocks: u32,
    /// Prompt tokens of admitted sequences that were looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens that were found in the prefix cache.
    pub prefix_hits: u64,
}

impl Engine {
    /// Returns an idle engine.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            blocks: BlockPool::new(config.num_blocks, config.block_size),
            config,
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_ends: None,
            slowdown: 1.0,
            pending: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Queues a sequence that will generate `output_tokens` tokens. An idle engine starts a step
    /// with it at once.
    ///
    /// Lengths of 0 count as 1. `id` must be unused.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] if prompt and output together exceed [`EngineConfig::max_model_len`] or
    /// the whole KV cache.
    pub fn submit(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> Result<(), TooLong> {
        self.submit_with(now, id, prompt_tokens, output_tokens, &[])
    }

    /// Queues a sequence like [`Engine::submit`], with hashes of its blocks.
    ///
    /// Each hash identifies [`EngineConfig::block_size`] tokens together with all tokens before
    /// them: first the prompt, then the generated tokens as far as the caller can predict them.
    /// Blocks without a hash are not shared. Hashes are ignored without
    /// [`EngineConfig::prefix_cache`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::submit`].
    pub fn submit_with(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
        hashes: &[u64],
    ) -> Result<(), TooLong> {
        let table = BlockTable::new(if self.config.prefix_cache { hashes } else { &[] });
        let sequence = Sequence::new(id, prompt_tokens.max(1), output_tokens.max(1), table);
        let longest = u64::from(self.config.max_model_len).min(self.blocks.capacity_tokens());
        if sequence.final_tokens() > longest {
            return Err(TooLong { tokens: sequence.final_tokens(), longest });
        }
        self.waiting.push_back(sequence);
        if self.step_ends.is_none() {
            self.begin_step(now);
        }
        Ok(())
    }

    /// Aborts a sequence, and frees its place and its blocks at once.
    ///
    /// Returns `false` if no such sequence exists, because it has finished or was aborted before. A
    /// step in progress keeps its planned duration.
    pub fn abort(&mut self, id: SequenceId) -> bool {
        if let Some(at) = self.waiting.iter().position(|s| s.id == id) {
            return self.waiting.remove(at).is_some();
        }
        let Some(at) = self.running.iter().position(|s| s.id == id) else { return false };
        let mut gone = self.running.remove(at);
        self.blocks.close(&mut gone.table);
        true
    }

    /// Returns the end time of the current step, or `None` if the engine is idle.
    pub fn next_event(&self) -> Option<Duration> {
        self.step_ends
    }

    /// Ends every step that ends by `now`, appends the events in order, and begins the following
    /// steps back to back.
    pub fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        events.append(&mut self.pending);
        while let Some(end) = self.step_ends.filter(|&end| end <= now) {
            self.end_step(end, events);
            self.begin_step(end);
            events.append(&mut self.pending);
        }
    }

    /// Appends events that were not reported yet: the admissions of a step that a submit began.
    pub fn drain(&mut self, events: &mut Vec<EngineEvent>) {
        events.append(&mut self.pending);
    }

    /// Sets the factor on the time of every later step. Values that are negative or not finite
    /// count as 1.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = if factor.is_finite() && factor >= 0.0 { factor } else { 1.0 };
    }

    /// Returns the factor set by [`Engine::set_slowdown`].
    pub fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Changes [`EngineConfig::max_num_seqs`]. Sequences that already run continue to their end.
    pub fn set_max_num_seqs(&mut self, sequences: u32) {
        self.config.max_num_seqs = sequences.max(1);
    }

    /// Drops all sequences, the cache, the counters and the slowdown, as if the process were killed
    /// and restarted. The configuration stays, including a changed [`EngineConfig::max_num_seqs`].
    pub fn reset(&mut self) {
        *self = Self::new(self.config.clone());
    }

    /// Returns the configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns the number of sequences that wait for their first admission, or for another one
    /// after a preemption.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of sequences in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of tokens that remain to be prefilled or recomputed, given the current
    /// prefix cache.
    pub fn uncomputed(&self) -> u64 {
        let waiting = self.waiting.iter().map(|s| s.uncomputed() - self.blocks.find(&s.table, s.reusable()));
        let running = self.running.iter().filter(|s| !s.decoding()).map(Sequence::uncomputed);
        waiting.chain(running).map(u64::from).sum()
    }

    /// Returns the paged KV cache.
    pub fn blocks(&self) -> &BlockPool {
        &self.blocks
    }

    /// Returns the counters since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }
}
