//! A model of one vLLM engine, without a clock and without I/O.
//!
//! Time advances in *steps* (forward passes). At the start of a step, the scheduler selects tokens
//! to compute as vLLM V1 does: first those of the running sequences, in order of admission, then
//! those of the waiting queue, first come first served. Both share one token budget, so a long
//! prompt is *chunked* over several steps. Each token needs space in a paged KV cache. If a running
//! sequence finds no space, the sequence admitted last is *preempted*: it loses its blocks, returns
//! to the front of the queue, and is recomputed, prompt and generated tokens alike. At the end of
//! the step, each sequence whose last known token was computed gains one token.
//!
//! With [`EngineConfig::prefix_cache`], full blocks remain cached after their sequences ended. A
//! later sequence with the same prefix does not compute them again, except its last token.
//! [`BlockPool`] describes caching and eviction.
//!
//! # Invariants
//!
//! - Blocks in use never exceed the pool, and all blocks are free when no sequence is left.
//! - Every submitted sequence ends exactly once: with [`EventKind::Finished`], with
//!   [`Engine::abort`] returning `true`, or with [`Engine::reset`].
//! - An abort frees the batch slot and the blocks of a sequence at once, also during a step or in
//!   the queue. (vLLM processes aborts between steps.)
//! - Times are durations since a start that the caller chooses. The caller passes the current time,
//!   which must never decrease. The same calls give the same events.
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

/// One engine, which vLLM calls an engine core. The [module](self) describes its behaviour.
#[derive(Debug, Clone)]
pub struct Engine {
    config: EngineConfig,
    blocks: BlockPool,
    /// Waiting sequences in the order in which they will be admitted. A preempted sequence returns
    /// to the front.
    waiting: VecDeque<Sequence>,
    /// Sequences in the batch, in order of admission. The last one is preempted first.
    running: Vec<Sequence>,
    /// End time of the current step, or `None` while the engine is idle.
    step_ends: Option<Duration>,
    /// Factor by which the time of every step is multiplied. 1 is the configured speed.
    slowdown: f64,
    /// Events that have occurred but were not reported yet.
    pending: Vec<EngineEvent>,
    totals: Totals,
}

/// Counters of an engine since it was created or reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of steps that began.
    pub steps: u64,
    /// Number of prompt tokens computed. After a preemption, the recomputed tokens count again,
    /// generated ones included.
    pub prefill_tokens: u64,
    /// Number of tokens generated.
    pub generated_tokens: u64,
    /// Number of preemptions. A sequence can be preempted several times.
    pub preemptions: u64,
    /// Maximum number of KV blocks in use at the same time.
    pub peak_blocks: u32,
    /// Number of prompt tokens of admitted sequences, each of which was looked up in the prefix
    /// cache. 0 without a prefix cache.
    pub prefix_queries: u64,
    /// Number of prompt tokens of admitted sequences that the prefix cache contained.
    pub prefix_hits: u64,
}

impl Engine {
    /// Returns an engine without sequences.
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

    /// Appends a sequence to the queue. It will generate `output_tokens` tokens. If the engine is
    /// idle, a step begins at `now`.
    ///
    /// A length of 0 counts as 1. No other sequence in the engine may have the same `id`.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] if prompt and output together exceed [`EngineConfig::max_model_len`] or
    /// the number of tokens that fit into the KV cache.
    pub fn submit(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> Result<(), TooLong> {
        self.submit_with(now, id, prompt_tokens, output_tokens, &[])
    }

    /// Appends a sequence to the queue like [`Engine::submit`], with hashes of its blocks.
    ///
    /// Each hash identifies [`EngineConfig::block_size`] tokens together with all tokens before
    /// them: first the prompt's, then the generated tokens' as far as the caller can predict them.
    /// Blocks without a hash are not shared. The hashes are ignored if
    /// [`EngineConfig::prefix_cache`] is `false`.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] in the cases in which [`Engine::submit`] does.
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
        let max_tokens = u64::from(self.config.max_model_len).min(self.blocks.capacity_tokens());
        if sequence.final_tokens() > max_tokens {
            return Err(TooLong { tokens: sequence.final_tokens(), max_tokens });
        }
        self.waiting.push_back(sequence);
        if self.step_ends.is_none() {
            self.begin_step(now);
        }
        Ok(())
    }

    /// Aborts a sequence, and frees its batch slot and its blocks at once. A step in progress keeps
    /// its planned duration.
    ///
    /// Returns `false` if the engine has no such sequence, for example because it has finished.
    pub fn abort(&mut self, id: SequenceId) -> bool {
        if let Some(at) = self.waiting.iter().position(|s| s.id == id) {
            return self.waiting.remove(at).is_some();
        }
        let Some(at) = self.running.iter().position(|s| s.id == id) else { return false };
        let mut aborted = self.running.remove(at);
        self.blocks.release(&mut aborted.table);
        true
    }

    /// Returns the end time of the current step, or `None` if the engine is idle.
    pub fn next_event(&self) -> Option<Duration> {
        self.step_ends
    }

    /// Advances the engine to `now`: ends every step whose end is not after `now`, and begins each
    /// next step when the previous one ends. Appends the events that occurred, in order.
    pub fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        events.append(&mut self.pending);
        while let Some(end) = self.step_ends.filter(|&end| end <= now) {
            self.end_step(end, events);
            self.begin_step(end);
            events.append(&mut self.pending);
        }
    }

    /// Appends the events that have occurred but were not reported yet, without advancing.
    /// [`Engine::submit`] causes such events if it begins a step.
    pub fn drain(&mut self, events: &mut Vec<EngineEvent>) {
        events.append(&mut self.pending);
    }

    /// Sets the factor by which the time of every later step is multiplied. A factor that is
    /// negative or not finite counts as 1, which is the configured speed.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = if factor.is_finite() && factor >= 0.0 { factor } else { 1.0 };
    }

    /// Returns the factor by which the time of a step is multiplied. It is 1 unless
    /// [`Engine::set_slowdown`] set it.
    pub fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Sets [`EngineConfig::max_num_seqs`] to `sequences`, or to 1 if that is 0. Sequences that
    /// already run continue to their end.
    pub fn set_max_num_seqs(&mut self, sequences: u32) {
        self.config.max_num_seqs = sequences.max(1);
    }

    /// Drops all sequences, the cache, the counters and the slowdown, as if the process were killed
    /// and restarted. Reports no events for the dropped sequences. The configuration stays,
    /// including what [`Engine::set_max_num_seqs`] set.
    pub fn reset(&mut self) {
        *self = Self::new(self.config.clone());
    }

    /// Returns the configuration, including what [`Engine::set_max_num_seqs`] set.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns the number of sequences in the queue, including preempted ones.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of sequences in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of prompt tokens that the engine has yet to compute, over all its
    /// sequences. This includes tokens of preempted sequences to recompute, and excludes tokens of
    /// waiting sequences that the prefix cache contains now.
    pub fn uncomputed(&self) -> u64 {
        let waiting =
            self.waiting.iter().map(|s| s.uncomputed() - self.blocks.cached_tokens(&s.table, s.reusable()));
        let running = self.running.iter().filter(|s| !s.decoding()).map(Sequence::uncomputed);
        waiting.chain(running).map(u64::from).sum()
    }

    /// Returns the KV cache.
    pub fn blocks(&self) -> &BlockPool {
        &self.blocks
    }

    /// Returns the counters since the engine was created or reset.
    pub fn totals(&self) -> Totals {
        self.totals
    }
}
