//! One vLLM engine: pure, without clock or I/O.
//!
//! The unit of time is the *step* (one forward pass). At the start of a step the scheduler picks tokens to
//! compute as vLLM V1 does: sequences already running first, in the order in which they were admitted; then
//! the waiting queue, first come first served, both inside one token budget (a long prompt is *chunked* over
//! steps). Each token needs room in a paged KV cache; when a running sequence finds none, the last-admitted
//! one is *preempted*: it loses its blocks, goes to the front of the queue and is recomputed, prompt and
//! generated tokens alike. At the end of the step each sequence whose last known token was computed gains one
//! token.
//!
//! With [`EngineConfig::prefix_cache`], full blocks of KV cache outlive their sequences, and a sequence that begins with the same ones does not compute them
//! again, though always its last token ([`BlockPool`] tells how they are kept and evicted).
//!
//! # Invariants
//!
//! - Blocks held never exceed the pool, and are all free when no sequence is left.
//! - Every submitted sequence ends exactly once: [`EventKind::Finished`], or [`Engine::abort`] returning
//!   true.
//! - An abort frees the sequence's place and blocks at once, also in the middle of a step or while it is
//!   queued. (vLLM takes aborts between two steps.)
//! - No clock: time is the `Duration` since any fixed start, given by the caller, never going back. The same
//!   calls give the same events.
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

/// One engine (a worker, in vLLM's words an engine core): see the [module](self).
#[derive(Debug, Clone)]
pub struct Engine {
    config: EngineConfig,
    blocks: BlockPool,
    /// First come first served; preempted sequences go back to the front.
    waiting: VecDeque<Sequence>,
    /// In order of admission; the last is the first victim.
    running: Vec<Sequence>,
    /// End of the step in progress.
    step_ends: Option<Duration>,
    /// What every step's time is multiplied by: 1 but for a slow start.
    slowdown: f64,
    /// Preemptions and the like found at the start of a step, told with the next [`Engine::advance`].
    pending: Vec<EngineEvent>,
    totals: Totals,
}

/// What an engine has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Steps begun.
    pub steps: u64,
    /// Prompt tokens computed, recomputed ones included.
    pub prefill_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Sequences that lost their blocks to an older one.
    pub preemptions: u64,
    /// Most KV blocks ever held.
    pub peak_blocks: u32,
    /// Prompt tokens of the sequences that were admitted: looked up in the prefix cache, if there is one.
    pub prefix_queries: u64,
    /// Those among them that were found there.
    pub prefix_hits: u64,
}

impl Engine {
    /// An idle engine.
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

    /// Queues a sequence of `prompt_tokens` that will generate `output_tokens` (0 counts as 1 for both). An
    /// idle engine starts a step with it at once. `id` must be unused.
    ///
    /// # Errors
    ///
    /// [`TooLong`] when prompt and output together exceed [`EngineConfig::max_model_len`] or the whole KV
    /// cache: such a sequence could never end.
    pub fn submit(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> Result<(), TooLong> {
        self.submit_with(now, id, prompt_tokens, output_tokens, &[])
    }

    /// As [`Engine::submit`], of a sequence whose blocks have these hashes: each stands for [`EngineConfig::block_size`] tokens and all before them, prompt first,
    /// then what will be generated, as far as the caller can tell. Blocks beyond them are shared with nobody. Without [`EngineConfig::prefix_cache`] they are
    /// ignored.
    ///
    /// # Errors
    ///
    /// As [`Engine::submit`].
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

    /// Ends a sequence wherever it is; its model_path and its blocks are free at once. False if there is none of
    /// this id (it has finished, or was aborted before). A step in progress still takes the time it was going
    /// to take.
    pub fn abort(&mut self, id: SequenceId) -> bool {
        if let Some(at) = self.waiting.iter().position(|s| s.id == id) {
            return self.waiting.remove(at).is_some();
        }
        let Some(at) = self.running.iter().position(|s| s.id == id) else { return false };
        let mut gone = self.running.remove(at);
        self.blocks.close(&mut gone.table);
        true
    }

    /// When the step in progress ends; `None` while idle.
    pub fn next_event(&self) -> Option<Duration> {
        self.step_ends
    }

    /// Ends every step that ends by `now`, appends what happened to `events` in order, and begins the next
    /// ones back to back.
    pub fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        events.append(&mut self.pending);
        while let Some(end) = self.step_ends.filter(|&end| end <= now) {
            self.end_step(end, events);
            self.begin_step(end);
            events.append(&mut self.pending);
        }
    }

    /// Appends what has happened but was not told yet: the admissions of a step that a submit began.
    pub fn drain(&mut self, events: &mut Vec<EngineEvent>) {
        events.append(&mut self.pending);
    }

    /// Multiplies the time of every step begun from now on (1 = as calibrated). Values below 0 or not finite
    /// count as 1.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = if factor.is_finite() && factor >= 0.0 { factor } else { 1.0 };
    }

    /// What was set by [`Engine::set_slowdown`].
    pub fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Changes [`EngineConfig::max_num_seqs`], as if by a restart that loses nothing: sequences above it that run already go on to their end.
    pub fn set_max_num_seqs(&mut self, sequences: u32) {
        self.config.max_num_seqs = sequences.max(1);
    }

    /// Loses everything it had, as a process that is killed and started again: its sequences, its cache, its counters and a slowdown. What it was configured
    /// with stays, a changed [`EngineConfig::max_num_seqs`] too.
    pub fn reset(&mut self) {
        *self = Self::new(self.config.clone());
    }

    /// The constants this engine runs on.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Sequences that wait for their first or (preempted) next admission.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that hold a model_path in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Tokens of prompts, and of what is to be recomputed, that stand between now and an empty queue, as the prefix cache is now.
    pub fn uncomputed(&self) -> u64 {
        let waiting = self.waiting.iter().map(|s| s.uncomputed() - self.blocks.find(&s.table, s.reusable()));
        let running = self.running.iter().filter(|s| !s.decoding()).map(Sequence::uncomputed);
        waiting.chain(running).map(u64::from).sum()
    }

    /// The paged KV cache.
    pub fn blocks(&self) -> &BlockPool {
        &self.blocks
    }

    /// Counters since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }
}
