//! The pool: engines with prefix caches, and what can be seen of them.

use std::time::Duration;

use tidegate::placement::{EngineMetrics, ReplicaSet};
use tidegate_sim::engine::{Engine, EngineConfig, EngineEvent, SequenceId, StepCost};

use super::workload::{Call, Workload};

pub(crate) const REPLICAS: usize = 8;
/// Milliseconds that a token of prompt takes.
pub(crate) const PROMPT_TOKEN_MS: f64 = 0.06;

/// An engine of the size of a node of eight GPUs: 17,000 prompt tokens a second, the longest prompt of Mooncake's trace with room to spare, and memory for a million
/// tokens, of which the eight together hold about a third of what the trace ever asks for. For sessions, a quarter of that memory.
pub(crate) fn engine(workload: Workload) -> EngineConfig {
    EngineConfig {
        block_size: workload.block_size(),
        num_blocks: 2_048,
        max_num_seqs: 256,
        max_num_batched_tokens: 4_096,
        prefix_cache: true,
        max_model_len: 196_608,
        step: StepCost {
            base_ms: 15.0,
            per_prompt_token_ms: PROMPT_TOKEN_MS,
            per_sequence_ms: 0.15,
            ..StepCost::default()
        },
    }
}

/// What a run's engines did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Prompt tokens of the calls that they began.
    pub(crate) asked: u64,
    /// Those that were cached.
    pub(crate) cached: u64,
    /// Those that they computed.
    pub(crate) computed: u64,
}

/// The engines.
pub(crate) struct Replicas {
    pub(crate) engines: Vec<Engine>,
    down: ReplicaSet,
    /// Nobody is told how they stand.
    pub(crate) mute: bool,
    /// Of engines that were killed.
    lost: Vec<Work>,
    /// Of each, prompt tokens of the calls whose first token came: counted as vLLM does, whole and then.
    prompts: Vec<u64>,
    /// What they said when they froze.
    frozen: Option<Vec<Option<EngineMetrics>>>,
}

impl Replicas {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let engines = (0..REPLICAS).map(|_| Engine::new(config.clone())).collect();
        Self {
            engines,
            down: ReplicaSet::NONE,
            mute: false,
            lost: vec![Work::default(); REPLICAS],
            prompts: vec![0; REPLICAS],
            frozen: None,
        }
    }

    /// Those that take calls.
    pub(crate) fn up(&self) -> ReplicaSet {
        (0..self.engines.len()).collect::<ReplicaSet>().less(self.down)
    }

    /// How a replica stands, if it says so.
    pub(crate) fn standing(&self, at: usize) -> Option<EngineMetrics> {
        if let Some(frozen) = &self.frozen {
            return frozen.get(at).copied().flatten();
        }
        let engine = self.engines.get(at).filter(|_| !self.mute && !self.down.contains(at))?;
        Some(EngineMetrics {
            running: engine.running() as f64,
            waiting: engine.waiting() as f64,
            kv_usage: Some(engine.blocks().usage()),
            kv_tokens: Some(engine.blocks().capacity_tokens()),
            prefix_queries: Some(engine.totals().prefix_queries as f64),
            prefix_hits: Some(engine.totals().prefix_hits as f64),
            prompt_tokens: self.prompts.get(at).map(|tokens| *tokens as f64),
            shares_prefixes: engine.config().prefix_cache,
        })
    }

    /// From now on they say what they say now.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some((0..self.engines.len()).map(|at| self.standing(at)).collect());
    }

    /// A call's first token came there.
    pub(crate) fn answers(&mut self, at: usize, prompt: u32) {
        if let Some(tokens) = self.prompts.get_mut(at) {
            *tokens += u64::from(prompt);
        }
    }

    /// False: nothing listens there.
    pub(crate) fn send(&mut self, now: Duration, at: usize, id: SequenceId, call: &Call) -> bool {
        let Some(engine) = self.engines.get_mut(at).filter(|_| !self.down.contains(at)) else { return false };
        engine.submit_with(now, id, call.input, call.output, &call.blocks).is_ok()
    }

    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.engines.iter().filter_map(Engine::next_event).min()
    }

    pub(crate) fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        for engine in &mut self.engines {
            engine.advance(now, events);
        }
    }

    /// All that it had is lost, its cache too.
    pub(crate) fn kill(&mut self, at: usize) {
        let done = self.work(at);
        if let Some((engine, lost)) = self.engines.get_mut(at).zip(self.lost.get_mut(at)) {
            *lost = done;
            engine.reset();
            self.prompts.iter_mut().skip(at).take(1).for_each(|tokens| *tokens = 0);
            self.down.insert(at);
        }
    }

    pub(crate) fn bring_back(&mut self, at: usize) {
        self.down.remove(at);
    }

    pub(crate) fn slow(&mut self, at: usize, factor: f64) {
        if let Some(engine) = self.engines.get_mut(at) {
            engine.set_slowdown(factor);
        }
    }

    /// What that one did, before it was killed too.
    pub(crate) fn work(&self, at: usize) -> Work {
        let Some((engine, lost)) = self.engines.get(at).zip(self.lost.get(at)) else {
            return Work::default();
        };
        let totals = engine.totals();
        Work {
            asked: lost.asked + totals.prefix_queries,
            cached: lost.cached + totals.prefix_hits,
            computed: lost.computed + totals.prefill_tokens,
        }
    }
}
